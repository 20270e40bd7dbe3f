package pages

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDiskBound(t *testing.T) {
	const size = 4 << 20
	d := openTestDisk(t, DiskConfig{SizeBytes: size, Compress: CompressOff})
	page := randomPage(1, 200_000)
	n := 0
	for ; ; n++ {
		_, err := d.Put(context.Background(), testKey(n), bytes.NewReader(page), int64(len(page)), false)
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrDiskBound) || !errors.Is(err, unix.ENOSPC) || errors.Is(err, ErrDiskMinFree) {
			t.Fatalf("%v, want ErrDiskBound", err)
		}
		break
	}
	if n < 10 {
		t.Errorf("only %d pages of %d bytes in %d", n, len(page), size)
	}
	checkUsage(t, d)
	if err := d.Remove(testKey(0)); err != nil {
		t.Fatal(err)
	}
	put(t, d, testKey(n), page)
}

// Many writers at once never exceed the bound, not even for a moment.
func TestDiskBoundUnderConcurrency(t *testing.T) {
	const size = 5 << 20
	d := openTestDisk(t, DiskConfig{SizeBytes: size})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 12 {
				page := bf16Page(uint64(g), 100_000+i)
				_, err := d.Put(context.Background(), testKey(100*g+i), bytes.NewReader(page), int64(len(page)), false)
				if err != nil && !errors.Is(err, ErrDiskBound) {
					t.Error(err)
				}
				if u := d.Usage(); u.UsedBytes > size {
					t.Errorf("%d bytes used", u.UsedBytes)
				}
				if i%3 == 0 {
					d.Remove(testKey(100*g + i))
				}
			}
		})
	}
	wg.Wait()
}

func TestDiskMinFree(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	total := must(d.fs.totalBytes(d.Dir()))(t)
	if _, err := OpenDisk(DiskConfig{Dir: d.Dir(), MinFreeBytes: total}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("the whole disk is to be left free: %v, want EINVAL", err)
	}
	tight := must(OpenDisk(DiskConfig{Dir: d.Dir(), MinFreeBytes: total - 1}))(t) // it has files
	if _, missing, err := tight.Missing(1); missing <= 0 || err != nil {
		t.Errorf("%d bytes are missing, %v", missing, err)
	}
	_, err := tight.Put(context.Background(), testKey(1), bytes.NewReader([]byte("x")), 1, false)
	if !errors.Is(err, ErrDiskMinFree) || !errors.Is(err, unix.ENOSPC) || errors.Is(err, ErrDiskBound) {
		t.Errorf("%v, want ErrDiskMinFree", err)
	}
	if u := tight.Usage(); u.ReservedBytes != 0 {
		t.Errorf("%d bytes stay reserved", u.ReservedBytes)
	}
}

func TestRecount(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	for i := range 20 {
		put(t, d, testKey(i), bf16Page(uint64(i), 50_000))
	}
	d.PutBlob(context.Background(), "blob", make([]byte, 9000), false)
	dead := filepath.Join(d.Dir(), "7f", tempPrefix+"deadbeef-1")
	os.WriteFile(dead, make([]byte, 100_000), 0o600)
	want := d.Usage().UsedBytes
	d.SetUsage(12345)
	if delta := must(d.Recount(context.Background()))(t); delta != want-12345 {
		t.Errorf("corrected by %d, want %d", delta, want-12345)
	}
	if _, err := os.Lstat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead process's temporary file is still there: %v", err)
	}
}

// A recount is exact although objects come and go meanwhile.
func TestRecountWhileWriting(t *testing.T) {
	d := openTestDisk(t, DiskConfig{Compress: CompressOff})
	page := randomPage(1, 30_000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := testKey(g*1000 + i%50)
				if _, err := d.Put(context.Background(), key, bytes.NewReader(page), int64(len(page)), false); err != nil {
					t.Error(err)
				}
				if i%2 == 1 {
					d.Remove(testKey(g*1000 + (i*7)%50))
				}
			}
		})
	}
	for range 5 {
		must(d.Recount(context.Background()))(t)
	}
	close(stop)
	wg.Wait()
	checkUsage(t, d)
	if delta := must(d.Recount(context.Background()))(t); delta != 0 {
		t.Errorf("was wrong by %d", delta)
	}
}

func TestDiskEach(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	want := map[Key]int64{}
	for i := range 30 {
		put(t, d, testKey(i), bf16Page(uint64(i), 20_000+i))
		want[testKey(i)] = int64(20_000 + i)
	}
	flipBit(t, d.ObjectPath(testKey(3)), 100, 1)
	os.WriteFile(filepath.Join(d.Dir(), "00", "stranger"), nil, 0o600)
	os.WriteFile(filepath.Join(d.Dir(), "00", testKey(5).String()+"x"), nil, 0o600)
	var badOnes, foreign int
	err := d.Each(context.Background(), func(o ObjectInfo) error {
		switch {
		case o.Err != nil && o.Key == testKey(3) && errors.Is(o.Err, ErrLost):
			badOnes++
		case o.Err != nil || o.RawBytes != want[o.Key] || o.StoredBytes == 0:
			t.Errorf("%+v", o)
		}
		delete(want, o.Key)
		return nil
	})
	if err != nil || len(want) != 0 || badOnes != 1 {
		t.Errorf("%d not seen, %d bad, %v", len(want), badOnes, err)
	}
	err = d.EachForeign(context.Background(), func(string) error { foreign++; return nil })
	if err != nil || foreign != 2 {
		t.Errorf("%d foreign, %v", foreign, err)
	}
	stop := errors.New("stop")
	if err := d.EachKey(context.Background(), func(Key, int64) error { return stop }); err != stop {
		t.Errorf("%v, want the function's own error", err)
	}
	if has := must(d.Has(testKey(3)))(t); !has {
		t.Error("a walk has moved something")
	}
}

// TestOverhead: what an empty tier takes is no content, from the first start on, and whatever its directories have
// grown to. A tier that was opened again knows so without counting its objects.
func TestOverhead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l2")
	open := func(content int64) *Disk {
		t.Helper()
		d := must(OpenDisk(DiskConfig{Dir: dir}))(t)
		if err := errors.Join(d.PutBlob(context.Background(), "own", []byte("x"), false), d.KeepOwnBlob("own"), d.SetContentBytes(content)); err != nil {
			t.Fatal(err)
		}
		checkUsage(t, d)
		if u := d.Usage(); u.ContentBytes() != content || u.OverheadBytes < 256*512 {
			t.Fatalf("of %d bytes, %d are content, want %d", u.UsedBytes, u.ContentBytes(), content)
		}
		return d
	}
	d := open(0)
	var content int64
	for i := range 300 {
		content += put(t, d, testKey(i), bf16Page(uint64(i), 100))
	}
	if got := d.Usage().ContentBytes(); got != content {
		t.Errorf("%d bytes of content, want %d", got, content)
	}
	d = open(content)
	must(d.Recount(context.Background()))(t)
	if got := d.Usage().ContentBytes(); got != content {
		t.Errorf("%d bytes of content after a recount, want %d", got, content)
	}
	for i := range 300 {
		if err := d.Remove(testKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.Usage().ContentBytes(); got != 0 {
		t.Errorf("%d bytes of content when nothing is left", got)
	}
}

// stepFunc is called before each step.
type stepFunc func(Step, string)

func (f stepFunc) Before(s Step, path string) error {
	f(s, path)
	return nil
}

// TestRecountMakesArea: a directory that is made while the tier is counted counts.
func TestRecountMakesArea(t *testing.T) {
	var d *Disk
	made := false
	d = openTestDisk(t, DiskConfig{Steps: stepFunc(func(s Step, path string) {
		if made || s != StepReadDir || path != d.path(objectDir(testKey(1))) {
			return
		}
		made = true
		if err := d.PutBlob(context.Background(), "made", make([]byte, 50_000), false); err != nil {
			t.Error(err)
		}
	})})
	put(t, d, testKey(1), randomPage(1, 100_000))
	if delta := must(d.Recount(context.Background()))(t); delta != 0 || !made {
		t.Errorf("the sum changed by %d bytes", delta)
	}
}
