package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Section 6: reading what is published.

// publishedSetup publishes one generation of one rank.
func publishedSetup(t *testing.T, md mode, pageTokens int, pageBytes int64) (*mount, string, generation) {
	t.Helper()
	m := mountFS(t, md)
	id := newIdentity(t.Name(), 1)
	ident := m.addIdentity(t, "model", id)
	g := shapedGeneration(id, conversation(1, 1000), pageTokens, pageBytes)
	return m, publish(t, ident, g), g
}

func TestPublishedReadOnly(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, dir, g := publishedSetup(t, md, 256, smallPage)
		for _, name := range []string{g.pages()[0].path, "manifest.json"} {
			file := filepath.Join(dir, name)
			for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC,
				os.O_WRONLY | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC} {
				f, err := os.OpenFile(file, flags, 0o644)
				if err == nil {
					f.Close()
				}
				wantErrno(t, fmt.Sprintf("open %s with %#x", name, flags), err, syscall.EROFS)
			}
			wantErrno(t, "truncate "+name, os.Truncate(file, 0), syscall.EROFS)
			f, err := os.Open(file)
			must(t, err)
			wantOneOf(t, "write to a reader's handle", second(f.Write([]byte("x"))), syscall.EBADF)
			wantOneOf(t, "ftruncate of a reader's handle", f.Truncate(0), syscall.EINVAL, syscall.EBADF)
			_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			wantErrno(t, "writable mapping of "+name, err, syscall.EACCES)
			must(t, f.Close())
			if st := stat(t, file); st.Mode != syscall.S_IFREG|0o444 {
				t.Errorf("%s has mode %o", name, st.Mode)
			}
		}
		must(t, checkGeneration(dir, g))
	})
}

func second[T any](_ T, err error) error { return err }

// TestReadingWays reads one page in every way that programs read files.
func TestReadingWays(t *testing.T) {
	for _, size := range []int64{64 << 10, 6893568} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inModes(t, func(t *testing.T, md mode) {
				_, dir, g := publishedSetup(t, md, 1000, size)
				readingWays(t, dir, g.pages()[0])
			})
		})
	}
}

func readingWays(t *testing.T, dir string, p page) {
	f, err := os.Open(filepath.Join(dir, p.path))
	must(t, err)
	defer f.Close()
	must(t, checkOpenPage(f, p))
	for _, off := range []int64{8, 4096, 4104, p.bytes - 8} { // pread in the middle and at the end
		buf := make([]byte, 100<<10)
		n, err := f.ReadAt(buf, off)
		if err != nil && err != io.EOF || int64(n) != min(int64(len(buf)), p.bytes-off) {
			t.Errorf("pread at %d: %d, %v", off, n, err)
		}
		must(t, checkBytes(p, 0, off, buf[:n]))
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(p.bytes), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	must(t, checkBytes(p, 0, 0, b))
	must(t, unix.Munmap(b))

	to, err := os.Create(filepath.Join(t.TempDir(), "copy"))
	must(t, err)
	defer to.Close()
	var from int64
	for from < p.bytes { // copy_file_range moves the offset itself
		n, err := unix.CopyFileRange(int(f.Fd()), &from, int(to.Fd()), nil, int(p.bytes), 0)
		if err == unix.EXDEV {
			t.Log("this kernel copies no ranges between filesystems")
			break
		}
		must(t, err)
		if n == 0 {
			break
		}
	}
	if from == p.bytes {
		must(t, checkOpenPage(to, p))
	}
	checkSendfile(t, f, p)
	checkDirect(t, filepath.Join(dir, p.path), p)
}

func checkSendfile(t *testing.T, f *os.File, p page) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	got := make(chan []byte)
	go func() {
		r := os.NewFile(uintptr(ends[1]), "socket")
		defer r.Close()
		b, _ := io.ReadAll(r)
		got <- b
	}()
	var off int64
	for off < p.bytes {
		n, err := unix.Sendfile(ends[0], int(f.Fd()), &off, int(p.bytes-off))
		must(t, err)
		if n == 0 {
			break
		}
	}
	unix.Close(ends[0])
	if _, err := whichCopy(p, <-got, 0); err != nil {
		t.Errorf("sendfile: %v", err)
	}
}

func checkDirect(t *testing.T, path string, p page) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	raw := make([]byte, 1<<20+4096)
	skip := -uintptr(unsafe.Pointer(&raw[0])) & 4095
	buf := raw[skip : skip+1<<20]
	for off := int64(0); off < p.bytes; off += int64(len(buf)) {
		n, err := unix.Pread(fd, buf, off)
		must(t, err)
		if int64(n) != min(int64(len(buf)), p.bytes-off) {
			t.Fatalf("O_DIRECT read of %d bytes at %d", n, off)
		}
		must(t, checkBytes(p, 0, off, buf[:n]))
	}
}

// TestBlocksAndHoles: st_blocks, SEEK_DATA and SEEK_HOLE as on a local filesystem.
func TestBlocksAndHoles(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("holes", 1)
		ident := m.addIdentity(t, "model", id)
		g := shapedGeneration(id, conversation(1, 1000), 1000, 1<<20)
		s := beginStaging(t, ident, "s", g)
		full, holed := g.pages()[0], g.pages()[1]
		must(t, s.writePage(full, 0))
		must(t, os.MkdirAll(filepath.Dir(s.file(holed.path)), 0o755))
		f, err := os.OpenFile(s.file(holed.path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		must(t, err)
		mark := []byte("only these bytes")
		_, err = f.WriteAt(mark, 0)
		must(t, err)
		_, err = f.WriteAt(mark, holed.bytes-int64(len(mark)))
		must(t, err)
		must(t, f.Close())
		s.complete(t)
		must(t, s.rename())

		st := stat(t, filepath.Join(s.target(), full.path))
		if st.Size != full.bytes || st.Blocks*512 < full.bytes || st.Blocks*512 > full.bytes+1<<20 {
			t.Errorf("a full page: size %d, %d blocks", st.Size, st.Blocks)
		}
		f, err = os.Open(filepath.Join(s.target(), full.path))
		must(t, err)
		defer f.Close()
		wantSeek(t, f, 0, unix.SEEK_DATA, 0)
		wantSeek(t, f, 4096, unix.SEEK_DATA, 4096)
		wantSeek(t, f, 0, unix.SEEK_HOLE, full.bytes)
		_, err = unix.Seek(int(f.Fd()), full.bytes, unix.SEEK_DATA)
		wantErrno(t, "SEEK_DATA at the end", err, syscall.ENXIO)
		_, err = unix.Seek(int(f.Fd()), full.bytes+1, unix.SEEK_HOLE)
		wantErrno(t, "SEEK_HOLE beyond the end", err, syscall.ENXIO)

		path := filepath.Join(s.target(), holed.path)
		want := make([]byte, holed.bytes)
		copy(want, mark)
		copy(want[holed.bytes-int64(len(mark)):], mark)
		got, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Error("a page with a hole reads otherwise than it was written")
		}
		if st := stat(t, path); st.Size != holed.bytes || st.Blocks*512 > holed.bytes+4096 {
			t.Errorf("a page with a hole: size %d, %d blocks", st.Size, st.Blocks)
		}
		if out := sparseCopy(t, path); !bytes.Equal(out, want) {
			t.Error("a copy by SEEK_DATA and SEEK_HOLE differs")
		}
	})
}

func wantSeek(t *testing.T, f *os.File, off int64, whence int, want int64) {
	t.Helper()
	got, err := unix.Seek(int(f.Fd()), off, whence)
	if err != nil || got != want {
		t.Errorf("lseek(%d, %d) is %d, %v; want %d", off, whence, got, err, want)
	}
}

// sparseCopy reads only what SEEK_DATA and SEEK_HOLE call data, as cp and tar do.
func sparseCopy(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	fi, err := f.Stat()
	must(t, err)
	out := make([]byte, fi.Size())
	for off := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return out
		}
		must(t, err)
		off, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		must(t, err)
		if from >= off {
			t.Fatalf("data from %d to %d", from, off)
		}
		_, err = f.ReadAt(out[from:off], from)
		must(t, err)
	}
}
