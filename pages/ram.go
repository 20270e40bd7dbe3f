package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// hugeMinBytes is the size from which a page gets its whole storage when it is
// created: one huge page. Smaller pages gain nothing from it.
const hugeMinBytes = hugeBytes

// fallocateStepBytes bounds one fallocate call. tmpfs undoes an interrupted
// call entirely, so one call for a whole gigabyte might never get through.
const fallocateStepBytes = 64 << 20

// RAM is the RAM tier: one file per page, <dir>/p/<2 hex>/<16 hex id>, on a
// tmpfs. A page's storage is unlinked when the page goes, and never truncated
// after publication nor reused: a mapping may outlive every descriptor.
//
// All methods may be called from any number of goroutines; there is no lock,
// the kernel's are enough. Errors are *os.PathError and wrap the errno.
type RAM struct {
	dir  string
	kind RAMKind
	pfd  int // <dir>/p, so that page paths resolve in two steps

	looks atomic.Uint64
}

// Stat is what the tier knows of one page file.
type Stat struct {
	Bytes          int64 // the file's size: how much has been written
	AllocatedBytes int64 // what the tmpfs really holds for it
	Mtime          int64 // nanoseconds since 1970
	UID, GID       uint32
}

// OpenRAM opens the tier in dir, which must exist, and makes its directories
// where they are missing. The pages of an earlier process are left as they are.
func OpenRAM(dir string) (*RAM, error) {
	kind := RAMDirectory
	if root, err := Mounted(dir); err != nil {
		return nil, err
	} else if root {
		kind = RAMTmpfs
	}
	p := filepath.Join(dir, "p")
	for _, d := range []string{p, filepath.Join(dir, "kept")} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("open RAM tier: %w", err)
		}
	}
	fd, err := retryEINTRInt(func() (int, error) {
		return unix.Open(p, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("open RAM tier: %w", &os.PathError{Op: "open", Path: p, Err: err})
	}
	r := &RAM{dir: dir, kind: kind, pfd: fd}
	for i := range 256 {
		sub := fmt.Sprintf("%02x", i)
		if err := unix.Mkdirat(fd, sub, 0o700); err != nil && err != unix.EEXIST {
			r.Close()
			return nil, fmt.Errorf("open RAM tier: %w", &os.PathError{Op: "mkdir", Path: filepath.Join(p, sub), Err: err})
		}
	}
	return r, nil
}

// Close gives back the tier's own descriptor. Pages and open files stay.
func (r *RAM) Close() error { return unix.Close(r.pfd) }

// Dir is the directory the tier was opened with.
func (r *RAM) Dir() string { return r.dir }

// Kind says what the tier lives on.
func (r *RAM) Kind() RAMKind { return r.kind }

// Path is where the page's file is, or would be.
func (r *RAM) Path(id ID) string { return r.dir + "/p/" + ramName(id) }

// ramName is the page's path below p/: its last two digits, then all sixteen.
func ramName(id ID) string {
	const digits = "0123456789abcdef"
	var b [19]byte
	b[0], b[1], b[2] = digits[id>>4&15], digits[id&15], '/'
	for i := range 16 {
		b[3+i] = digits[id>>(60-4*i)&15]
	}
	return string(b[:])
}

func (r *RAM) pathError(op string, id ID, err error) error {
	return &os.PathError{Op: op, Path: r.Path(id), Err: err}
}

func (r *RAM) open(id ID, flags int) (*os.File, error) {
	name := ramName(id)
	fd, err := retryEINTRInt(func() (int, error) {
		return unix.Openat(r.pfd, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	})
	if err != nil {
		return nil, r.pathError("open", id, err)
	}
	return os.NewFile(uintptr(fd), r.Path(id)), nil
}

// Create makes the page's file, mode 0600, and opens it for reading and
// writing. EEXIST if it is there. A page of sizeBytes >= 2 MiB gets all its
// storage now: huge pages are used and a later write cannot fail for want of
// space; the size stays 0. On ENOSPC nothing is left behind.
func (r *RAM) Create(id ID, sizeBytes int64) (*os.File, error) {
	f, err := r.open(id, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	if sizeBytes < hugeMinBytes {
		return f, nil
	}
	if err := allocate(int(f.Fd()), sizeBytes); err != nil {
		f.Close()
		_, undo := r.Remove(id)
		return nil, errors.Join(r.pathError("fallocate", id, err), undo)
	}
	return f, nil
}

func allocate(fd int, sizeBytes int64) error {
	for at := int64(0); at < sizeBytes; at += fallocateStepBytes {
		n := min(fallocateStepBytes, sizeBytes-at)
		err := retryEINTR(func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, at, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Open opens the page for reading. ENOENT if RAM has no copy.
func (r *RAM) Open(id ID) (*os.File, error) { return r.open(id, unix.O_RDONLY) }

// OpenRW opens a page that is not published yet for reading and writing.
func (r *RAM) OpenRW(id ID) (*os.File, error) { return r.open(id, unix.O_RDWR) }

// Looks is how often a page's file has been asked for its size or for writers.
func (r *RAM) Looks() uint64 { return r.looks.Load() }

// Stat looks at the page's file. ENOENT if RAM has no copy.
func (r *RAM) Stat(id ID) (Stat, error) {
	st, _, err := r.statName(ramName(id))
	if err != nil {
		return Stat{}, r.pathError("stat", id, err)
	}
	return st, nil
}

func (r *RAM) statName(name string) (_ Stat, regular bool, err error) {
	r.looks.Add(1)
	var st unix.Stat_t
	err = retryEINTR(func() error { return unix.Fstatat(r.pfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return Stat{}, false, err
	}
	regular = st.Mode&unix.S_IFMT == unix.S_IFREG
	return statOf(&st), regular, nil
}

func statOf(st *unix.Stat_t) Stat {
	return Stat{Bytes: st.Size, AllocatedBytes: st.Blocks * 512, Mtime: st.Mtim.Nano(), UID: st.Uid, GID: st.Gid}
}

// Truncate sets the size of a page that is not published yet.
func (r *RAM) Truncate(id ID, bytes int64) error {
	if err := retryEINTR(func() error { return unix.Truncate(r.Path(id), bytes) }); err != nil {
		return r.pathError("truncate", id, err)
	}
	return nil
}

// Usage is what the tier's filesystem holds and could hold, in bytes. Unlinked
// pages that are still open or mapped count. For a RAMDirectory these are the
// figures of the whole shared tmpfs.
func (r *RAM) Usage() (usedBytes, totalBytes int64, err error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Fstatfs(r.pfd, &st) }); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: r.dir, Err: err}
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}
