package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// The calls below exist beside package os for two reasons: they are relative
// to an open directory, and they leave the descriptor blocking. os.OpenFile
// offers every descriptor to the poller, which on a FUSE file is one request
// to the daemon more.

// retry calls f until it is not interrupted by a signal.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// openAt opens path, relative to the directory dir (unix.AT_FDCWD: the working
// directory). The errors are bare errnos wrapped with the path.
func openAt(dir int, path string, flags int, mode uint32) (*os.File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(dir, path, flags|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// open opens a path as it stands.
func open(path string, flags int) (*os.File, error) {
	return openAt(unix.AT_FDCWD, path, flags, 0)
}

// mkdirAt makes a directory; one that is there already is no error.
func mkdirAt(dir int, path string) error {
	err := retry(func() error { return unix.Mkdirat(dir, path, 0o755) })
	if err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// unlinkAt removes a name; flags may be unix.AT_REMOVEDIR. A name that is gone
// already is no error.
func unlinkAt(dir int, path string, flags int) error {
	err := retry(func() error { return unix.Unlinkat(dir, path, flags) })
	if err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

// statAt returns the attributes of a name.
func statAt(dir int, path string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(dir, path, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return st, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st, nil
}

// closeChecked closes f and returns what the filesystem said about it. An
// interrupted close has closed the descriptor all the same.
func closeChecked(f *os.File) error {
	err := f.Close()
	if isErrno(err, unix.EINTR) {
		return nil
	}
	return err
}
