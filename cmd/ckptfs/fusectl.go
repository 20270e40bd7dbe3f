package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// connectionControl is the directory of one FUSE connection in the kernel's control filesystem, fusectl. It is opened
// while the mount is sure to be there and stays open: its name is the minor number of the mount, and that of a mount
// that is gone is soon another's. Without root it is nil, and everything here does nothing.
type connectionControl struct{ dir *os.File }

// openConnectionControl opens the directory of the mount with this device. Where fusectl is not mounted, as in most
// containers, root can have it all the same, in a mount that is in no directory.
func openConnectionControl(device string) (connectionControl, error) {
	_, minor, ok := strings.Cut(device, ":")
	if !ok {
		return connectionControl{}, fmt.Errorf("a mount has no device %q", device)
	}
	if f, err := os.Open("/sys/fs/fuse/connections/" + minor); err == nil {
		return connectionControl{f}, nil
	}
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return connectionControl{}, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return connectionControl{}, os.NewSyscallError("fsconfig", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return connectionControl{}, os.NewSyscallError("fsmount", err)
	}
	defer unix.Close(root)
	dir, err := unix.Openat(root, minor, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return connectionControl{}, &os.PathError{Op: "openat", Path: "fusectl/" + minor, Err: err}
	}
	return connectionControl{os.NewFile(uintptr(dir), "fusectl/"+minor)}, nil
}

// abort ends the connection: whoever waits in it gets ECONNABORTED, whoever uses it later ENOTCONN.
func (c connectionControl) abort() {
	if f := c.open("abort", unix.O_WRONLY); f != nil {
		defer f.Close()
		f.WriteString("1")
	}
}

// waiting is how many calls of clients are not answered yet, taken by a daemon or not; "unknown" if it can't be had.
func (c connectionControl) waiting() string {
	f := c.open("waiting", unix.O_RDONLY)
	if f == nil {
		return "unknown"
	}
	defer f.Close()
	var b [32]byte
	n, err := f.Read(b[:])
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b[:n]))
}

// open opens a file of the connection; nil if there is none, or no connection any more.
func (c connectionControl) open(name string, flags int) *os.File {
	if c.dir == nil {
		return nil
	}
	fd, err := unix.Openat(int(c.dir.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), name)
}

func (c connectionControl) close() {
	if c.dir != nil {
		c.dir.Close()
	}
}
