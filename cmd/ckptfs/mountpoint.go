package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// mountPoint is a directory that was found fit to mount on.
type mountPoint struct {
	path string // absolute, without symlinks
	dead bool   // a FUSE mount that nobody serves any more is in the way
}

// answerLimit is how long a mounted filesystem has to answer statfs(2).
const answerLimit = 5 * time.Second

// checkMountPoint looks at the path that was given as mount point and touches nothing. It must be a directory on
// which nothing is mounted, except for dead FUSE mounts.
func checkMountPoint(path string) (mountPoint, error) {
	// O_PATH resolves the whole path, a dead mount at its end included, without asking any filesystem server.
	fd, err := openRetry(path, unix.O_PATH|unix.O_CLOEXEC)
	switch {
	case errors.Is(err, unix.ENOENT):
		return mountPoint{}, badMountPoint("the mount point %s does not exist; make it first (mkdir -p %s, or --mkdir)", path, path)
	case errors.Is(err, unix.ENOTCONN):
		return mountPoint{}, badMountPoint("the mount point %s lies below a dead mount; unmount that first", path)
	case err != nil:
		return mountPoint{}, badMountPoint("the mount point %s cannot be used: %w", path, err)
	}
	defer unix.Close(fd)
	resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return mountPoint{}, badMountPoint("the mount point %s cannot be resolved: %w", path, err)
	}
	table, err := mountTable()
	if err != nil {
		return mountPoint{}, badMountPoint("the mounts at %s cannot be looked up: %w", resolved, err)
	}
	stack := mountsAt(table, resolved)
	if len(stack) == 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return mountPoint{}, badMountPoint("the mount point %s cannot be used: %w", path, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return mountPoint{}, badMountPoint("the mount point %s is not a directory", path)
		}
		return mountPoint{path: resolved}, nil
	}
	for _, e := range stack {
		if !e.isFUSE() {
			return mountPoint{}, badMountPoint("the mount point %s is in use: a %s is mounted there; take another directory", resolved, e.fstype)
		}
	}
	if err := answers(fd); !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) {
		return mountPoint{}, badMountPoint("the mount point %s is in use: a live %s is mounted there; unmount it first (umount %s)",
			resolved, stack[len(stack)-1].fstype, resolved)
	}
	return mountPoint{path: resolved, dead: true}, nil
}

// makeMountPoint makes the directory where there is nothing yet. A dead mount is something.
func makeMountPoint(path string) error {
	fd, err := openRetry(path, unix.O_PATH|unix.O_CLOEXEC)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.ENOENT) {
		return nil // checkMountPoint says what is wrong
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return badMountPoint("the mount point cannot be made: %w", err)
	}
	return nil
}

func badMountPoint(format string, args ...any) error {
	return withCode(exitMountPoint, fmt.Errorf(format, args...))
}

// answers asks the filesystem on which fd lies for its figures, which no cache of the kernel can answer, unlike
// stat(2). A dead one says ENOTCONN, or ECONNABORTED if it died meanwhile. A mount that takes longer than answerLimit is not dead.
func answers(fd int) error {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		defer unix.Close(dup)
		var st unix.Statfs_t
		answer <- unix.Fstatfs(dup, &st)
	}()
	select {
	case err := <-answer:
		return err
	case <-time.After(answerLimit):
		return unix.ETIMEDOUT
	}
}

// clearDead takes the dead FUSE mounts at m away, all that are stacked there.
func (m mountPoint) clearDead() error {
	for m.dead {
		if err := detach(m.path); err != nil {
			return withCode(exitMountPoint, fmt.Errorf("the dead mount at %s cannot be cleared: %w; do it by hand (umount -l %s)", m.path, err, m.path))
		}
		again, err := checkMountPoint(m.path)
		if err != nil {
			return err
		}
		m = again
	}
	return nil
}

// resolveState returns the absolute path of the state directory without symlinks, also if it does not exist yet,
// and refuses one that the mount or the RAM tier would hide.
func resolveState(dir string, at string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", withCode(exitState, err)
	}
	state := resolveExisting(abs)
	if isBelow(state, at) || isBelow(abs, at) {
		return "", withCode(exitState, fmt.Errorf("the state directory %s lies at or below the mount point %s, which would hide it; take another --state", state, at))
	}
	if ram := filepath.Join(state, ramDirName); isBelow(at, ram) {
		return "", withCode(exitState, fmt.Errorf("the mount point %s lies in %s, where the RAM tier will be; take another", at, ram))
	}
	if st, err := os.Stat(state); err == nil && !st.IsDir() {
		return "", withCode(exitState, fmt.Errorf("the state directory %s is not a directory", state))
	}
	return state, nil
}

// resolveMountPoint is resolveExisting, but asks nobody who may be mounted at path and not answer.
func resolveMountPoint(path string) string {
	fd, err := openRetry(path, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return resolveExisting(path)
	}
	defer unix.Close(fd)
	resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return path
	}
	return resolved
}

// resolveExisting resolves the symlinks in as much of the absolute path as exists.
func resolveExisting(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil || path == "/" {
		return resolved
	}
	return filepath.Join(resolveExisting(filepath.Dir(path)), filepath.Base(path))
}

// isBelow reports whether the clean absolute path is dir or lies in it.
func isBelow(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// openRetry is open(2), repeated when a signal interrupts it.
func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
