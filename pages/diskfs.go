package pages

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A Step is one kind of disk access. Every access of the disk tier is one of
// these, so that a test can fail exactly one and see what is left.
type Step string

// The steps, in the order in which a write takes them, then the others.
const (
	StepStatfs  Step = "statfs"
	StepMkdir   Step = "mkdir"
	StepCreate  Step = "create"
	StepWrite   Step = "write"
	StepSync    Step = "sync"
	StepClose   Step = "close"
	StepRename  Step = "rename"
	StepSyncDir Step = "syncdir"
	StepOpen    Step = "open"
	StepRead    Step = "read"
	StepStat    Step = "stat"
	StepReadDir Step = "readdir"
	StepRemove  Step = "remove"
)

// Steps is told of every disk access before it happens. An error is taken for
// the access's own result, and the access does not happen (a file is closed all
// the same). Called from many goroutines at once, also under an area's lock.
type Steps interface {
	Before(step Step, path string) error
}

// diskFS is the disk as the tier uses it. Errors are *os.PathError.
type diskFS struct {
	steps Steps // nil: none
}

func (fs diskFS) before(step Step, path string) error {
	if fs.steps == nil {
		return nil
	}
	return pathError(step, path, fs.steps.Before(step, path))
}

func pathError(step Step, path string, err error) error {
	var pe *os.PathError
	if err == nil || errors.As(err, &pe) {
		return err
	}
	return &os.PathError{Op: string(step), Path: path, Err: err}
}

// open opens path without following a symbolic link and without waiting for
// the other end of a FIFO. It bypasses the page cache where the filesystem
// lets it: what is read goes to the RAM tier, a second copy would only push
// out somebody else's.
func (fs diskFS) open(path string, flags int) (*os.File, error) {
	return fs.openFile(StepOpen, path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK)
}

// create makes path, which must not be there, mode 0600.
func (fs diskFS) create(path string, flags int) (*os.File, error) {
	return fs.openFile(StepCreate, path, flags|unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)
}

func (fs diskFS) openFile(step Step, path string, flags int) (*os.File, error) {
	if err := fs.before(step, path); err != nil {
		return nil, err
	}
	open := func(flags int) (int, error) {
		return retryEINTRInt(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0o600) })
	}
	fd, err := open(flags)
	if err == unix.EINVAL && flags&unix.O_DIRECT != 0 {
		// This filesystem has no direct I/O. A file that the failed call
		// made may be there all the same.
		if flags&unix.O_CREAT != 0 {
			_ = unix.Unlink(path)
		}
		fd, err = open(flags &^ unix.O_DIRECT)
	}
	if err != nil {
		return nil, pathError(step, path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (fs diskFS) readAt(f *os.File, b []byte, off int64) (int, error) {
	if err := fs.before(StepRead, f.Name()); err != nil {
		return 0, err
	}
	return f.ReadAt(b, off)
}

func (fs diskFS) writeAt(f *os.File, b []byte, off int64) error {
	if err := fs.before(StepWrite, f.Name()); err != nil {
		return err
	}
	_, err := f.WriteAt(b, off)
	return err
}

// sync brings the file's bytes and its size to the disk.
func (fs diskFS) sync(f *os.File) error {
	if err := fs.before(StepSync, f.Name()); err != nil {
		return err
	}
	err := retryEINTR(func() error { return unix.Fdatasync(int(f.Fd())) })
	return pathError(StepSync, f.Name(), err)
}

// syncAll brings everything on dir's filesystem to the disk.
func (fs diskFS) syncAll(dir *os.File) error {
	if err := fs.before(StepSync, dir.Name()); err != nil {
		return err
	}
	err := retryEINTR(func() error { return unix.Syncfs(int(dir.Fd())) })
	return pathError(StepSync, dir.Name(), err)
}

// close drops what the file left in the page cache (with direct I/O there is
// nothing) and closes it.
func (fs diskFS) close(f *os.File) error {
	injected := fs.before(StepClose, f.Name())
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return errors.Join(injected, f.Close())
}

func (fs diskFS) rename(from, to string) error {
	if err := fs.before(StepRename, from); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// syncDir makes the names in dir durable.
func (fs diskFS) syncDir(dir string) error {
	if err := fs.before(StepSyncDir, dir); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (fs diskFS) mkdir(dir string) error {
	if err := fs.before(StepMkdir, dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

func (fs diskFS) remove(path string) error {
	if err := fs.before(StepRemove, path); err != nil {
		return err
	}
	err := retryEINTR(func() error { return unix.Unlink(path) })
	return pathError(StepRemove, path, err)
}

func (fs diskFS) lstat(path string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := fs.before(StepStat, path); err != nil {
		return st, err
	}
	err := retryEINTR(func() error { return unix.Lstat(path, &st) })
	return st, pathError(StepStat, path, err)
}

// freeBytes is what the disk itself still has for us.
func (fs diskFS) freeBytes(path string) (int64, error) {
	if err := fs.before(StepStatfs, path); err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(path, &st) }); err != nil {
		return 0, pathError(StepStatfs, path, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// totalBytes is the size of the disk, whoever uses it.
func (fs diskFS) totalBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(path, &st) }); err != nil {
		return 0, pathError(StepStatfs, path, err)
	}
	return int64(st.Blocks) * st.Bsize, nil
}

// eachName calls f for every name in dir.
func (fs diskFS) eachName(dir string, f func(name string) error) error {
	if err := fs.before(StepReadDir, dir); err != nil {
		return err
	}
	return eachName(dir, f)
}

// realBytes is what a file takes on the disk, as du counts it.
func realBytes(st unix.Stat_t) int64 { return st.Blocks * 512 }
