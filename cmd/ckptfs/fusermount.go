package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// fusermount3 is the setuid program with which an ordinary user mounts FUSE filesystems.

var errNoHelper = errors.New("mounting needs root (CAP_SYS_ADMIN) or the program fusermount3 (package fuse3), which is not there")

func helperPath() (string, error) {
	for _, name := range []string{"fusermount3", "fusermount"} {
		for _, candidate := range []string{name, "/usr/bin/" + name, "/bin/" + name} {
			if path, err := exec.LookPath(candidate); err == nil {
				return path, nil
			}
		}
	}
	return "", errNoHelper
}

// mountByHelper lets fusermount3 open /dev/fuse and mount; the descriptor comes over a socket whose number is in
// _FUSE_COMMFD.
func (m *fuseMount) mountByHelper() error {
	helper, err := helperPath()
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "fusermount3")
	options := append([]string{"fsname=ckptfs", "subtype=ckptfs", "nodev", "nosuid"}, m.options()...)
	cmd := exec.Command(helper, "-o", strings.Join(options, ","), "--", m.point)
	cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	cmd.ExtraFiles = []*os.File{theirs}
	said, err := cmd.CombinedOutput()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("mounting at %s: %s: %w: %s", m.point, helper, err, strings.TrimSpace(string(said)))
	}
	fd, err := receiveFD(pair[0])
	if err != nil {
		return fmt.Errorf("mounting at %s: %s sent no descriptor: %w", m.point, helper, err)
	}
	m.dev, m.byHelper = os.NewFile(uintptr(fd), "/dev/fuse"), true
	return nil
}

// receiveFD takes the one descriptor that was sent over the socket.
func receiveFD(socket int) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 4), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("%d control messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("%d descriptors, %v", len(fds), err)
	}
	return fds[0], nil
}

// unmountByHelper is a lazy unmount by fusermount3.
func unmountByHelper(point string) error {
	helper, err := helperPath()
	if err != nil {
		return err
	}
	if said, err := exec.Command(helper, "-u", "-z", "-q", "--", point).CombinedOutput(); err != nil {
		return fmt.Errorf("%s -u: %w: %s", helper, err, strings.TrimSpace(string(said)))
	}
	return nil
}
