package pages

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNoLeases says that this system gives no file leases (fs.leases-enable is
// 0, or neither owner nor CAP_LEASE), so writers cannot be found this way.
var ErrNoLeases = errors.New("file leases are not to be had")

// Leases reports whether file leases are to be had, of files of any owner. True
// where that can't be told.
func (r *RAM) Leases() bool {
	fd, err := retryEINTRInt(func() (int, error) {
		return unix.Openat(r.pfd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	_ = unix.Fchown(fd, os.Geteuid()+1, -1) // where nobody can give files away all are the daemon's own
	_, err = retryEINTRInt(func() (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK) })
	return err == nil || err == unix.EAGAIN // this descriptor is a writer
}

// HasWriter reports whether anybody still has the page open for writing or
// mapped writable, a mapping that outlived its descriptor included. It asks for
// a read lease on a fresh read-only descriptor, which the kernel refuses with
// EAGAIN while the inode has a writer (fcntl(2), F_SETLEASE), and gives it back
// at once. ENOENT if RAM has no copy; ErrNoLeases where leases are not to be had.
//
// Whoever opens the page for writing within those microseconds waits for the
// lease to go and this process gets a SIGIO, which the Go runtime drops unless
// a program asks for it.
func (r *RAM) HasWriter(id ID) (bool, error) {
	_, busy, err := r.Settled(id)
	return busy, err
}

// Settled is HasWriter together with a Stat at an instant in which nobody could
// write. Without leases (ErrNoLeases) the Stat is good all the same.
func (r *RAM) Settled(id ID) (st Stat, busy bool, err error) {
	r.looks.Add(1)
	name := ramName(id)
	fd, err := retryEINTRInt(func() (int, error) {
		return unix.Openat(r.pfd, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	})
	if err != nil {
		return Stat{}, false, r.pathError("open", id, err)
	}
	defer unix.Close(fd)
	_, leaseErr := retryEINTRInt(func() (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK) })
	var u unix.Stat_t
	err = retryEINTR(func() error { return unix.Fstat(fd, &u) })
	if leaseErr == nil {
		// Not left to close: a child between fork and exec may share the
		// descriptor, and the lease would live until it execs.
		_, _ = retryEINTRInt(func() (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK) })
	}
	if err != nil {
		return Stat{}, false, r.pathError("stat", id, err)
	}
	st = statOf(&u)
	switch leaseErr {
	case nil:
		return st, false, nil
	case unix.EAGAIN:
		return st, true, nil
	case unix.EINVAL, unix.EACCES, unix.ENOLCK:
		return st, false, r.pathError("lease", id, fmt.Errorf("%w: %w", ErrNoLeases, leaseErr))
	}
	return st, false, r.pathError("lease", id, leaseErr)
}

// HasWriters is HasWriter for many pages: busy[i] answers for ids[i]. It stops
// at the first error. About 9 µs a page.
func (r *RAM) HasWriters(ids []ID) (busy []bool, err error) {
	busy = make([]bool, len(ids))
	for i, id := range ids {
		if busy[i], err = r.HasWriter(id); err != nil {
			return nil, err
		}
	}
	return busy, nil
}
