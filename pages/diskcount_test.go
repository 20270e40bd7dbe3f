package pages

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// countingPage counts what is read of a page, and what is written to one.
type countingPage struct {
	io.ReaderAt
	io.WriterAt
	calls, bytes atomic.Int64
	parts        atomic.Int64 // writes that do not begin with a huge page
}

func (c *countingPage) count(n int) {
	c.calls.Add(1)
	c.bytes.Add(int64(n))
}

func (c *countingPage) ReadAt(b []byte, off int64) (int, error) {
	c.count(len(b))
	return c.ReaderAt.ReadAt(b, off)
}

func (c *countingPage) WriteAt(b []byte, off int64) (int, error) {
	c.count(len(b))
	if off%hugeBytes != 0 {
		c.parts.Add(1)
	}
	return c.WriterAt.WriteAt(b, off)
}

// TestDiskTransferCounts: every byte of a page is copied once, in few large calls.
func TestDiskTransferCounts(t *testing.T) {
	for _, c := range []struct {
		name                     string
		bytes                    int
		diskWrites, diskReads    int // one more write is the header
		sourceReads, destination int64
	}{
		{"large", benchPageBytes, 5, 4, 27, 4},
		{"small", 64 << 10, 2, 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps := &countSteps{}
			d := openTestDisk(t, DiskConfig{Compress: CompressOff, Steps: steps})
			src := &countingPage{ReaderAt: bytes.NewReader(randomPage(1, c.bytes))}
			must(d.Put(context.Background(), testKey(1), src, int64(c.bytes), true))(t)
			if n := steps.n(StepWrite); n != c.diskWrites || src.calls.Load() != c.sourceReads || src.bytes.Load() != int64(c.bytes) {
				t.Errorf("written with %d writes, want %d, from %d bytes read in %d calls, want %d and %d",
					n, c.diskWrites, src.bytes.Load(), src.calls.Load(), c.bytes, c.sourceReads)
			}
			before := steps.n(StepRead)
			dst := &countingPage{WriterAt: &memFile{}}
			must(d.CopyTo(context.Background(), testKey(1), dst))(t)
			if n := steps.n(StepRead) - before; n != c.diskReads || dst.calls.Load() != c.destination || dst.bytes.Load() != int64(c.bytes) || dst.parts.Load() != 0 {
				t.Errorf("brought back with %d reads, want %d, %d bytes in %d writes, want %d in %d; %d begin within a huge page",
					n, c.diskReads, dst.bytes.Load(), dst.calls.Load(), c.bytes, c.destination, dst.parts.Load())
			}
		})
	}
}

// TestPageCacheStaysEmpty: what RAM holds, or has just given up, is not in the
// kernel's cache a second time.
func TestPageCacheStaysEmpty(t *testing.T) {
	for _, compress := range []Compress{CompressOff, CompressAuto} {
		t.Run(compress.String(), func(t *testing.T) {
			d := openTestDisk(t, DiskConfig{Compress: compress})
			requireDirectIO(t, d.Dir())
			page := bf16Page(1, benchPageBytes)
			key := testKey(1)
			put(t, d, key, page)
			wantCached(t, d.ObjectPath(key), false, "a write")
			must(d.CopyTo(context.Background(), key, &memFile{}))(t)
			wantCached(t, d.ObjectPath(key), false, "a load")
			o := must(d.OpenObject(key))(t)
			must(o.ReadAt(make([]byte, 1<<20), 99))(t)
			wantCached(t, d.ObjectPath(key), false, "a read of a part")
			o.Close()
			must(os.ReadFile(d.ObjectPath(key)))(t) // the kernel does cache it, and it is seen
			wantCached(t, d.ObjectPath(key), true, "an ordinary read")
		})
	}
}

// requireDirectIO skips where files have no copy but the one in the page cache.
func requireDirectIO(t *testing.T, dir string) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		t.Skipf("filesystem type %#x in %s keeps files in the page cache by itself; set TMPDIR to a disk", st.Type, dir)
	}
}

// wantCached asks the kernel whether it caches any of the file.
func wantCached(t *testing.T, path string, want bool, after string) {
	t.Helper()
	f := must(os.Open(path))(t)
	defer f.Close()
	size := int(must(f.Stat())(t).Size())
	m := must(unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED))(t)
	defer unix.Munmap(m)
	resident := make([]byte, (size+4095)/4096)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(size), uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
		t.Fatal(errno)
	}
	n := 0
	for _, r := range resident {
		n += int(r & 1)
	}
	if (n > 0) != want {
		t.Errorf("after %s %d of %d pages of the object are cached", after, n, len(resident))
	}
}
