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

// badDisk is a tier with one object, and what it reported.
type badDisk struct {
	*Disk
	key    Key
	page   []byte
	path   string
	events []Event
}

func newBadDisk(t *testing.T, mode Compress, steps Steps) *badDisk {
	b := &badDisk{key: testKey(1), page: bf16Page(1, 300_001)}
	b.Disk = openTestDisk(t, DiskConfig{Compress: mode, Steps: steps, CopyParallel: 1,
		OnEvent: func(e Event) { b.events = append(b.events, e) }})
	put(t, b.Disk, b.key, b.page)
	b.path = b.ObjectPath(b.key)
	return b
}

// wantLost asks for the page and sees that it is lost, out of the way, reported
// and counted, and that it can be put again.
func (b *badDisk) wantLost(t *testing.T, reason string) {
	t.Helper()
	before := b.Counts().Lost
	b.events = nil
	_, err := read(b.Disk, b.key)
	if !errors.Is(err, ErrLost) || errors.Is(err, ErrAbsent) {
		t.Fatalf("read: %v, want ErrLost", err)
	}
	if len(b.events) != 1 || b.events[0].Kind != EventQuarantined || b.events[0].Path != b.path || b.events[0].Key != b.key {
		t.Fatalf("events %+v, want one that it was quarantined", b.events)
	}
	moved := b.events[0].Moved
	if _, err := os.Lstat(moved); err != nil || !strings.Contains(filepath.Base(moved), "."+reason) {
		t.Errorf("quarantined as %s (%v), want reason %q", moved, err, reason)
	}
	if b.Counts().Lost != before+1 {
		t.Error("the loss was not counted")
	}
	if _, err := b.OpenObject(b.key); !errors.Is(err, ErrAbsent) {
		t.Errorf("open afterwards: %v, want ErrAbsent", err)
	}
	put(t, b.Disk, b.key, b.page)
	b.wantGood(t)
}

func (b *badDisk) wantGood(t *testing.T) {
	t.Helper()
	if got, err := read(b.Disk, b.key); err != nil || !bytes.Equal(got, b.page) {
		t.Fatalf("not what it was: %v", err)
	}
}

func flipBit(t *testing.T, path string, off int64, bit uint) {
	t.Helper()
	f := must(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer f.Close()
	var b [1]byte
	must(f.ReadAt(b[:], off))(t)
	b[0] ^= 1 << bit
	must(f.WriteAt(b[:], off))(t)
}

func TestBadObjectTruncated(t *testing.T) {
	for _, mode := range []Compress{CompressAuto, CompressOff} {
		b := newBadDisk(t, mode, nil)
		size := must(os.Stat(b.path))(t).Size()
		for _, n := range []int64{0, 1, 79, 4095, 4096, size / 2, alignDown(size / 2), size - 4096, size - 1} {
			if err := os.Truncate(b.path, n); err != nil {
				t.Fatal(err)
			}
			must(b.Recount(context.Background()))(t)
			b.wantLost(t, "short")
		}
		if err := os.Truncate(b.path, size+4096); err != nil {
			t.Fatal(err)
		}
		b.wantLost(t, "short")
	}
}

// One flipped bit in any byte of the header, or anywhere in the payload, is
// seen. The padding after the payload is the only place where one does no harm.
func TestBadObjectFlippedBit(t *testing.T) {
	for _, mode := range []Compress{CompressAuto, CompressOff, CompressZstd} {
		b := newBadDisk(t, mode, nil)
		o := must(b.OpenObject(b.key))(t)
		end := o.starts[len(o.starts)-1]
		o.Close()
		var offs []int64
		for off := range int64(alignBytes) {
			if off < 128 || off%97 == 0 {
				offs = append(offs, off)
			}
		}
		r := testRand(5)
		for range 40 {
			offs = append(offs, alignBytes+r.Int64N(end-alignBytes))
		}
		offs = append(offs, alignBytes, end-1)
		for _, off := range offs {
			flipBit(t, b.path, off, uint(off)%8)
			if err := b.Verify(context.Background(), b.key); !errors.Is(err, ErrLost) {
				t.Fatalf("%v: a flipped bit at %d: %v, want ErrLost", mode, off, err)
			}
			moved := b.events[len(b.events)-1].Moved
			flipBit(t, moved, off, uint(off)%8)
			if err := os.Rename(moved, b.path); err != nil {
				t.Fatal(err)
			}
		}
		b.wantGood(t)
		must(b.Recount(context.Background()))(t)
	}
}

func TestBadObjectForeign(t *testing.T) {
	b := newBadDisk(t, CompressAuto, nil)
	other := testKey(2)
	put(t, b.Disk, other, b.page)
	bytes := must(os.ReadFile(b.ObjectPath(other)))(t)
	if err := os.WriteFile(b.path, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	must(b.Recount(context.Background()))(t)
	b.wantLost(t, "foreign")
	if err := os.WriteFile(b.path, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	must(b.Recount(context.Background()))(t)
	b.wantLost(t, "magic")
}

func TestBadObjectSomethingElseInItsPlace(t *testing.T) {
	b := newBadDisk(t, CompressAuto, nil)
	for name, make := range map[string]func() error{
		"directory": func() error {
			if err := os.Mkdir(b.path, 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(b.path, "within"), []byte("x"), 0o600)
		},
		"foreign":  func() error { return os.Symlink("/etc/passwd", b.path) },
		"foreign.": func() error { return unix.Mkfifo(b.path, 0o600) },
	} {
		b.Remove(b.key)
		if err := make(); err != nil {
			t.Fatal(err)
		}
		must(b.Recount(context.Background()))(t)
		b.wantLost(t, strings.TrimSuffix(name, "."))
	}
	// A writer finds it too.
	b.Remove(b.key)
	os.Mkdir(b.path, 0o700)
	must(b.Recount(context.Background()))(t)
	put(t, b.Disk, b.key, b.page)
	b.wantGood(t)
}

func TestBadObjectOfAnotherLengthIsReplaced(t *testing.T) {
	b := newBadDisk(t, CompressAuto, nil)
	b.page = b.page[:5000]
	put(t, b.Disk, b.key, b.page)
	b.wantGood(t)
	if len(b.events) != 1 || !strings.HasSuffix(b.events[0].Moved, ".length") {
		t.Errorf("events %+v", b.events)
	}
}

// Trouble is none of the two kinds of loss, and moves nothing.
func TestTroubleIsNotLoss(t *testing.T) {
	fail := &failSteps{}
	b := newBadDisk(t, CompressOff, fail)
	for _, errno := range []error{unix.EIO, unix.EACCES, unix.ESTALE, unix.ETIMEDOUT, unix.EMFILE} {
		for n := 1; ; n++ {
			fail.arm(n, errno)
			_, err := read(b.Disk, b.key)
			failed := fail.failed
			fail.arm(0, nil)
			if failed == "" {
				break
			}
			if failed == StepClose {
				continue
			}
			if !errors.Is(err, errno) || errors.Is(err, ErrLost) || errors.Is(err, ErrAbsent) {
				t.Fatalf("%v at step %d (%s): %v", errno, n, failed, err)
			}
			b.wantGood(t)
		}
	}
	if len(b.events) != 0 || b.Counts().Lost != 0 {
		t.Errorf("events %+v", b.events)
	}
}

// As root nothing is unreadable; as anybody else this is the real thing.
func TestTroublePermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything; TestTroubleIsNotLoss injects EACCES")
	}
	b := newBadDisk(t, CompressAuto, nil)
	os.Chmod(b.path, 0)
	if _, err := read(b.Disk, b.key); !errors.Is(err, unix.EACCES) || errors.Is(err, ErrLost) {
		t.Errorf("%v, want EACCES", err)
	}
	os.Chmod(b.path, 0o600)
	b.wantGood(t)
}

// A block that is bad once and good when it is read again is no loss.
func TestBadTransferIsReadAgain(t *testing.T) {
	b := newBadDisk(t, CompressOff, nil)
	o := must(b.OpenObject(b.key))(t)
	defer o.Close()
	stored := bytes.Clone(b.page[:defaultBlockBytes])
	stored[99] ^= 4
	if err := o.block(b.coders.get(), 0, stored, stored); err != nil || !bytes.Equal(stored, b.page[:defaultBlockBytes]) {
		t.Fatalf("%v", err)
	}
	if b.Counts() != (DiskCounts{Reread: 1}) || len(b.events) != 1 || b.events[0].Kind != EventReread {
		t.Errorf("%+v, %+v", b.Counts(), b.events)
	}
}

// A reader that holds a bad file must not condemn the good one that has taken
// its place.
func TestBadObjectReplacedMeanwhile(t *testing.T) {
	b := newBadDisk(t, CompressOff, nil)
	flipBit(t, b.path, 5000, 1)
	o := must(b.OpenObject(b.key))(t)
	defer o.Close()
	b.Remove(b.key)
	put(t, b.Disk, b.key, b.page)
	if _, err := o.ReadAt(make([]byte, 10), 0); !errors.Is(err, errReplaced) || errors.Is(err, ErrLost) {
		t.Fatalf("%v, want errReplaced", err)
	}
	b.wantGood(t)
}

func TestNewerFormatIsTrouble(t *testing.T) {
	b := newBadDisk(t, CompressAuto, nil)
	head := make([]byte, alignBytes)
	f := must(os.OpenFile(b.path, os.O_RDWR, 0))(t)
	defer f.Close()
	must(f.ReadAt(head, 0))(t)
	head[8]++
	head[16], head[17], head[18], head[19] = 0, 0, 0, 0
	c := headerCRC(head)
	head[16], head[17], head[18], head[19] = byte(c), byte(c>>8), byte(c>>16), byte(c>>24)
	must(f.WriteAt(head, 0))(t)
	if _, err := read(b.Disk, b.key); !errors.Is(err, ErrNewerFormat) || errors.Is(err, ErrLost) {
		t.Fatalf("%v, want ErrNewerFormat", err)
	}
	if len(b.events) != 0 {
		t.Errorf("events %+v", b.events)
	}
}

// What is in quarantine may not push good objects out.
func TestQuarantineIsBounded(t *testing.T) {
	var kinds []EventKind
	d := openTestDisk(t, DiskConfig{SizeBytes: 8 << 20, Compress: CompressOff,
		OnEvent: func(e Event) { kinds = append(kinds, e.Kind) }})
	page := randomPage(1, 300_000)
	for i := range 5 {
		put(t, d, testKey(i), page)
		flipBit(t, d.ObjectPath(testKey(i)), 5000, 0)
		if err := d.Verify(context.Background(), testKey(i)); !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
	}
	want := []EventKind{EventQuarantined, EventQuarantined, EventQuarantined, EventRemoved, EventRemoved}
	if len(kinds) != 5 || kinds[2] != want[2] || kinds[3] != want[3] || kinds[4] != want[4] {
		t.Errorf("%v, want %v", kinds, want)
	}
}

func TestReadOnlyChangesNothing(t *testing.T) {
	b := newBadDisk(t, CompressAuto, nil)
	flipBit(t, b.path, 5000, 3)
	d := must(OpenDisk(DiskConfig{Dir: b.Dir(), ReadOnly: true}))(t)
	for range 2 {
		if err := d.Verify(context.Background(), b.key); !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
	}
	if _, err := d.Put(context.Background(), testKey(2), bytes.NewReader(b.page), 5, false); !errors.Is(err, unix.EROFS) {
		t.Errorf("put: %v", err)
	}
	if err := d.Remove(b.key); !errors.Is(err, unix.EROFS) {
		t.Errorf("remove: %v", err)
	}
}
