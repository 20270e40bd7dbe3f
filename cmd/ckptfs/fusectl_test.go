package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConnectionControl: it is that of one mount, also when another has got its number.
func TestConnectionControl(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the control of a connection is for root")
	}
	requireFUSE(t)
	point := t.TempDir()
	mount := func() (*os.File, connectionControl) {
		dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		must(t, err)
		must(t, unix.Mount("try", point, "fuse", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())))
		table, err := mountTable()
		must(t, err)
		c, err := openConnectionControl(mountsAt(table, point)[0].device)
		must(t, err)
		t.Cleanup(c.close)
		return dev, c
	}
	firstDev, first := mount()
	defer firstDev.Close()
	if got := first.waiting(); got == "unknown" {
		t.Errorf("%s calls wait", got)
	}
	must(t, unix.Unmount(point, unix.MNT_DETACH))
	if got := first.waiting(); got != "unknown" {
		t.Errorf("a mount that is gone has %s calls waiting", got)
	}
	secondDev, second := mount()
	defer secondDev.Close()
	defer unix.Unmount(point, unix.MNT_DETACH)
	first.abort()
	if second.waiting() == "unknown" {
		t.Errorf("the end of one mount ended another")
	}
	second.abort()
	if _, err := os.Stat(filepath.Join(point, "x")); err == nil {
		t.Errorf("the mount is alive after its connection was ended")
	}
}

// TestFormerDaemonThatCannotDie: a daemon that waits in the kernel for a call that only it could answer. It holds its
// lock and the device, which this test does in its place until the call fails.
func TestFormerDaemonThatCannotDie(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can end a connection that somebody holds")
	}
	m := newMounted(t).start()
	s := m.status()
	held := copyDescriptors(t, s.PID, "/dev/fuse", filepath.Join(m.state, daemonLockName))
	call := make(chan error, 1)
	must(t, syscall.Kill(s.PID, syscall.SIGSTOP))
	must(t, m.cmd.Process.Kill())
	m.wait()
	go func() {
		_, err := os.ReadFile(filepath.Join(m.point, "data"))
		for _, fd := range held {
			unix.Close(fd)
		}
		call <- err
	}()
	m.start()
	if err := <-call; err == nil {
		t.Errorf("the call was answered")
	}
	if now := m.status(); !now.Fresh {
		t.Errorf("status is %+v after a new mount", now)
	}
}

// copyDescriptors gives this process what another one has open by these names.
func copyDescriptors(t *testing.T, pid int, names ...string) (fds []int) {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	defer unix.Close(process)
	for _, name := range names {
		copied := -1
		for fd := 3; fd < 100 && copied < 0; fd++ {
			if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err == nil && to == name {
				copied, err = unix.PidfdGetfd(process, fd, 0)
				must(t, err)
			}
		}
		if copied < 0 {
			t.Fatalf("process %d has no %s open", pid, name)
		}
		fds = append(fds, copied)
	}
	return fds
}
