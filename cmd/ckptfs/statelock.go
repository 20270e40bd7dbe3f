package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Two locks in the state directory, both flock(2), so that the kernel drops them with the process and a stale file
// never blocks. The keeper holds "lock" while it lives: no second ckptfs may use the state. The daemon holds
// "daemon.lock": a new keeper waits until the daemon of a killed one is really gone.
const (
	keeperLockName = "lock"
	daemonLockName = "daemon.lock"
)

// errLocked says that somebody else holds a lock.
var errLocked = errors.New("locked")

// fileLock is a held lock. It is not inherited by child processes (close-on-exec).
type fileLock struct{ file *os.File }

// lockFile takes the lock in path at once or fails with errLocked. With create, a missing file is made.
func lockFile(path string, create bool) (*fileLock, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return &fileLock{f}, nil
}

// lockFileWithin is lockFile, but waits for the lock, no longer than limit: errLocked.
func lockFileWithin(path string, create bool, limit time.Duration) (*fileLock, error) {
	l, err := lockFile(path, create)
	if !errors.Is(err, errLocked) {
		return l, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() { got <- flock(f, unix.LOCK_EX) }()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		return &fileLock{f}, nil
	case <-time.After(limit):
		// The waiting goroutine keeps f until the process ends, which a caller that gives up does next.
		return nil, errLocked
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// describe writes who holds the lock into the file, for the message that the next one gets.
func (l *fileLock) describe(text string) error {
	n, err := l.file.WriteAt([]byte(text+"\n"), 0)
	if err != nil {
		return err
	}
	return l.file.Truncate(int64(n)) // last: on a full disk the file keeps its block
}

// release drops the lock. The file stays.
func (l *fileLock) release() { l.file.Close() }

// lockHolder returns what describe wrote into path, "" if nothing can be read.
func lockHolder(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 8192 {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// lockState takes the keeper's lock of a state directory. Without create the directory is left as it is, and a lock
// file that does not exist is no error: nil, nobody uses it.
func lockState(stateDir string, create bool) (*fileLock, error) {
	path := filepath.Join(stateDir, keeperLockName)
	l, err := lockFile(path, create)
	switch {
	case errors.Is(err, errLocked):
		who := "another ckptfs"
		if h := lockHolder(path); h != "" {
			who += " (" + h + ")"
		}
		return nil, withCode(exitInUse, fmt.Errorf("the state directory %s is in use by %s; stop it first, or take another --state", stateDir, who))
	case errors.Is(err, os.ErrNotExist) && !create:
		return nil, nil
	case err != nil:
		return nil, withCode(exitState, fmt.Errorf("the state directory %s cannot be locked: %w", stateDir, err))
	}
	return l, nil
}
