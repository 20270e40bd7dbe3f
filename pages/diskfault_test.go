package pages

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// faultOp is an operation on a tier that has objects 0 to 3 and blob "old"; it
// must leave what check accepts whether it succeeds or fails.
type faultOp struct {
	name   string
	run    func(d *Disk) error
	check  func(t *testing.T, d *Disk, failed error)
	walk   bool // it only looks, in many steps
	alters bool // the test itself alters sizes behind the tier's back
}

var faultPages = func() (list [][]byte) {
	for i := range 6 {
		list = append(list, bf16Page(uint64(i), 70_000))
	}
	return list
}()

func putPage(d *Disk, i int, durable bool) error {
	_, err := d.Put(context.Background(), testKey(i), bytes.NewReader(faultPages[i]), int64(len(faultPages[i])), durable)
	return err
}

// wantPage: page i is right or absent; with there, it is right.
func wantPage(t *testing.T, d *Disk, i int, there bool) {
	t.Helper()
	got, err := read(d, testKey(i))
	if errors.Is(err, ErrAbsent) && !there {
		return
	}
	if err != nil || !bytes.Equal(got, faultPages[i]) {
		t.Errorf("page %d: %v", i, err)
	}
}

var faultOps = []faultOp{
	{name: "put", run: func(d *Disk) error { return putPage(d, 4, false) },
		check: func(t *testing.T, d *Disk, failed error) { wantPage(t, d, 4, failed == nil) }},
	{name: "put durable", run: func(d *Disk) error { return putPage(d, 4, true) },
		check: func(t *testing.T, d *Disk, failed error) { wantPage(t, d, 4, failed == nil) }},
	{name: "put where the directory is gone", run: func(d *Disk) error {
		os.Remove(filepath.Join(d.Dir(), objectDir(testKey(5))))
		return putPage(d, 5, true)
	}, check: func(t *testing.T, d *Disk, failed error) { wantPage(t, d, 5, failed == nil) }, alters: true},
	{name: "put over a bad object", run: func(d *Disk) error {
		os.Truncate(d.ObjectPath(testKey(0)), 5000)
		return putPage(d, 0, false)
	}, alters: true, check: func(t *testing.T, d *Disk, failed error) {
		if got, err := read(d, testKey(0)); err == nil {
			if !bytes.Equal(got, faultPages[0]) {
				t.Error("wrong bytes")
			}
		} else if failed == nil || !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	}},
	{name: "sync", run: func(d *Disk) error { return d.Sync(testKey(1)) }, check: func(*testing.T, *Disk, error) {}},
	{name: "sync all", run: func(d *Disk) error { return d.SyncAll() }, check: func(*testing.T, *Disk, error) {}},
	{name: "remove", run: func(d *Disk) error { return d.Remove(testKey(0)) },
		check: func(t *testing.T, d *Disk, failed error) {
			wantPage(t, d, 0, false)
			if has := must(d.Has(testKey(0)))(t); has && failed == nil {
				t.Error("removed and still there")
			}
		}},
	{name: "put blob", run: func(d *Disk) error { return d.PutBlob(context.Background(), "new", []byte("new body"), true) },
		check: func(t *testing.T, d *Disk, failed error) {
			b, err := d.ReadBlob("new")
			if string(b) != "new body" && !(failed != nil && errors.Is(err, ErrAbsent)) {
				t.Errorf("%q, %v", b, err)
			}
		}},
	{name: "replace blob", run: func(d *Disk) error { return d.PutBlob(context.Background(), "old", []byte("new body"), false) },
		check: func(t *testing.T, d *Disk, failed error) {
			b, err := d.ReadBlob("old")
			if string(b) != "new body" && !(failed != nil && string(b) == "old body") {
				t.Errorf("%q, %v", b, err)
			}
		}},
	{name: "clean", run: func(d *Disk) error { _, err := d.CleanTemp(context.Background()); return err },
		walk: true},
	{name: "recount", run: func(d *Disk) error { _, err := d.Recount(context.Background()); return err },
		walk: true},
}

// Every step of every operation fails once, with each errno; afterwards nothing
// that was there is harmed, the account is exact, no temporary file is left
// after CleanTemp, and the operation succeeds when it is tried again.
func TestDiskFailEveryStep(t *testing.T) {
	fail := &failSteps{}
	d := openTestDisk(t, DiskConfig{Steps: fail, SizeBytes: 16 << 20, MinFreeBytes: 1})
	for _, op := range faultOps {
		t.Run(op.name, func(t *testing.T) {
			for _, errno := range []error{unix.EIO, unix.ENOSPC} {
				if op.walk && errno == unix.ENOSPC {
					break // many steps, and no disk says that to a reader
				}
				n := 1
				for failStep(t, d, fail, op, n, errno) {
					n++
				}
				if n < 3 {
					t.Errorf("only %d steps were seen", n-1)
				}
			}
		})
	}
}

// prepareFault brings the tier into the state that every operation starts from.
func prepareFault(t *testing.T, d *Disk) {
	t.Helper()
	for i := range faultPages {
		err := d.Remove(testKey(i))
		if i < 4 && err == nil {
			err = putPage(d, i, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d.RemoveBlob("new")
	if err := d.PutBlob(context.Background(), "old", []byte("old body"), false); err != nil {
		t.Fatal(err)
	}
}

// failStep runs op with step n failing; false if op has fewer steps.
func failStep(t *testing.T, d *Disk, fail *failSteps, op faultOp, n int, errno error) bool {
	if !op.walk || n == 1 {
		prepareFault(t, d)
	}
	fail.arm(n, errno)
	err := op.run(d)
	failed := fail.failed
	fail.arm(0, nil)
	if err != nil && (failed == "" || !errors.Is(err, errno) && !errors.Is(err, ErrLost)) {
		t.Fatalf("step %d (%s): %v, want %v", n, failed, err, errno)
	}
	if op.walk {
		if n%16 == 1 {
			checkUsage(t, d)
		}
		return failed != ""
	}
	op.check(t, d, err)
	for i := 1; i < 4; i++ {
		wantPage(t, d, i, true)
	}
	if op.alters {
		must(d.Recount(context.Background()))(t)
	}
	checkUsage(t, d)
	must(d.CleanTemp(context.Background()))(t)
	wantNoTemp(t, d)
	if err := op.run(d); err != nil {
		t.Fatalf("again, after step %d (%s): %v", n, failed, err)
	}
	op.check(t, d, nil)
	if op.alters {
		must(d.Recount(context.Background()))(t)
	}
	return failed != ""
}

func wantNoTemp(t *testing.T, d *Disk) {
	t.Helper()
	filepath.WalkDir(d.Dir(), func(path string, e os.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("%s is left, %v", path, err)
		}
		return nil
	})
}

// When not even the temporary file can be removed, it is counted until it is.
func TestDiskTempThatStays(t *testing.T) {
	var events []Event
	fail := &failSteps{forever: true}
	d := openTestDisk(t, DiskConfig{Steps: fail, OnEvent: func(e Event) { events = append(events, e) }})
	fail.match = func(s Step, _ string) bool { return s == StepRename || s == StepRemove }
	fail.arm(1, unix.EIO)
	if err := putPage(d, 0, false); !errors.Is(err, unix.EIO) {
		t.Fatalf("%v, want EIO", err)
	}
	if len(events) != 1 || events[0].Kind != EventTempLeft {
		t.Errorf("events %+v", events)
	}
	checkUsage(t, d)
	if n, err := d.CleanTemp(context.Background()); n != 0 || !errors.Is(err, unix.EIO) {
		t.Errorf("%d cleaned, %v", n, err)
	}
	must(d.Recount(context.Background()))(t)
	checkUsage(t, d)
	fail.arm(0, nil)
	if n := must(d.CleanTemp(context.Background()))(t); n != 1 {
		t.Errorf("%d cleaned", n)
	}
	wantNoTemp(t, d)
}

// A tier that is opened on a full or failing disk opens; the first write says so.
func TestDiskOpensWhenFull(t *testing.T) {
	dir := openTestDisk(t, DiskConfig{}).Dir()
	os.Remove(filepath.Join(dir, "00"))
	fail := &failSteps{forever: true, match: func(s Step, _ string) bool { return s == StepMkdir }}
	fail.arm(1, unix.ENOSPC)
	d := must(OpenDisk(DiskConfig{Dir: dir, Steps: fail}))(t)
	fail.arm(0, nil)
	os.Mkdir(filepath.Join(dir, "00"), 0o700)
	if err := putPage(d, 0, false); err != nil {
		t.Fatal(err)
	}
	d.Remove(testKey(0))
}

// TestDiskSyncsNewDirectory: a write is not durable as long as the name of its
// directory is not: what could not be synced when it was made is synced later.
func TestDiskSyncsNewDirectory(t *testing.T) {
	synced := 0
	steps := &failSteps{}
	d := openTestDisk(t, DiskConfig{Steps: steps})
	steps.match = func(s Step, path string) bool {
		if s != StepSyncDir || path != d.Dir() {
			return false
		}
		synced++
		return true
	}
	if err := os.Remove(filepath.Join(d.Dir(), objectDir(testKey(4)))); err != nil {
		t.Fatal(err)
	}
	must(d.Recount(context.Background()))(t) // the test has altered what there is
	steps.arm(1, unix.EIO)
	if err := putPage(d, 4, true); !errors.Is(err, unix.EIO) {
		t.Fatalf("the directory could not be synced, and that gave %v", err)
	}
	for _, want := range []int{2, 2} {
		if err := putPage(d, 4, true); err != nil || synced != want {
			t.Errorf("%v; the tier's directory was synced %d times, want %d", err, synced, want)
		}
	}
}
