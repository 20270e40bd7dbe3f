package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxWriteBytes is the largest read or write request that the kernel may send.
const maxWriteBytes = 1 << 20

// fuseMount is a mounted filesystem, seen from the keeper: the descriptor that keeps the connection alive while
// daemons come and go, and what was agreed with the kernel.
type fuseMount struct {
	point     string
	dev       *os.File // /dev/fuse, blocking
	device    string   // major:minor of the mount
	control   connectionControl
	init      initPacket // what the kernel sent
	reply     initReply  // what the first daemon answered; nil before
	allowed   bool       // other users may enter
	byHelper  bool       // mounted by fusermount3, which must unmount it too
	abandoned bool       // abort was called
}

// mountFUSE mounts at point and waits for the kernel's INIT. Nobody serves it yet: callers wait.
func mountFUSE(point string, allowOther bool, log *slog.Logger) (*fuseMount, error) {
	m := &fuseMount{point: point, allowed: allowOther}
	err := m.mountDirect()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		log.Debug("mount(2) is not permitted, trying fusermount3", "err", err)
		err = m.mountByHelper()
	}
	if err != nil {
		return nil, withCode(exitMount, err)
	}
	if err := m.readInit(10 * time.Second); err != nil {
		m.abort()
		detach(point)
		return nil, withCode(exitMount, fmt.Errorf("mounting %s: %w", point, err))
	}
	if table, err := mountTable(); err == nil {
		if stack := mountsAt(table, point); len(stack) > 0 {
			m.device = stack[len(stack)-1].device
			if m.control, err = openConnectionControl(m.device); err != nil {
				log.Debug("the kernel's control of the connection is not to be had", "err", err)
			}
		}
	}
	return m, nil
}

// options are the mount options that the kernel and fusermount3 both take.
func (m *fuseMount) options() []string {
	o := []string{"default_permissions", "max_read=" + strconv.Itoa(maxWriteBytes)}
	if m.allowed {
		o = append(o, "allow_other")
	}
	return o
}

func (m *fuseMount) mountDirect() error {
	fd, err := openRetry("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC)
	if err != nil {
		return fmt.Errorf("/dev/fuse cannot be opened: %w; is the fuse module there, and may this user or container use it?", err)
	}
	// The root directory's type and this process as the owner of the mount are what fusermount gives too.
	data := append([]string{"fd=" + strconv.Itoa(fd), "rootmode=40000",
		"user_id=" + strconv.Itoa(os.Geteuid()), "group_id=" + strconv.Itoa(os.Getegid())}, m.options()...)
	err = unix.Mount("ckptfs", m.point, "fuse.ckptfs", unix.MS_NODEV|unix.MS_NOSUID, strings.Join(data, ","))
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("mounting at %s: %w", m.point, err)
	}
	m.dev = os.NewFile(uintptr(fd), "/dev/fuse")
	return nil
}

// readInit reads the request that the kernel sends first.
func (m *fuseMount) readInit(limit time.Duration) error {
	poll := []unix.PollFd{{Fd: int32(m.dev.Fd()), Events: unix.POLLIN}}
	deadline := time.Now().Add(limit)
	for {
		n, err := unix.Poll(poll, int(max(time.Until(deadline), 0)/time.Millisecond))
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			break
		}
		if time.Now().After(deadline) {
			return errors.New("the kernel sent no FUSE_INIT")
		}
	}
	buf := make([]byte, maxWriteBytes+4096) // the kernel refuses smaller reads
	n, err := m.dev.Read(buf)
	if err != nil {
		return err
	}
	m.init = append(initPacket(nil), buf[:n]...)
	return m.init.valid()
}

// accept gives the first daemon's reply to the kernel; from here on it sends requests.
func (m *fuseMount) accept(r initReply) error {
	if _, err := m.dev.Write(r); err != nil {
		return fmt.Errorf("answering FUSE_INIT: %w", err)
	}
	m.reply = r
	return nil
}

// alive reports whether the connection still exists: nobody unmounted or aborted it.
func (m *fuseMount) alive() bool {
	poll := []unix.PollFd{{Fd: int32(m.dev.Fd()), Events: unix.POLLOUT}}
	n, err := unix.Poll(poll, 0)
	return err != nil || n == 0 || poll[0].Revents&unix.POLLERR == 0
}

// mounted reports whether the mount is still in the mount table.
func (m *fuseMount) mounted() bool {
	table, err := mountTable()
	if err != nil {
		return true
	}
	for _, e := range mountsAt(table, m.point) {
		if e.device == m.device {
			return true
		}
	}
	return false
}

// unmount takes the mount away; one that is busy is detached, its open files stay good until the connection ends.
// Writing back what a client had mapped may need a daemon that does not answer: beyond limit the connection is aborted.
func (m *fuseMount) unmount(limit time.Duration) error {
	if !m.mounted() {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		err := unix.Unmount(m.point, unix.UMOUNT_NOFOLLOW)
		if err != nil {
			err = detach(m.point)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		m.abort()
		return <-done
	}
}

// abort ends the connection: every call that waits for an answer fails, now and later. The mount stays in the table.
func (m *fuseMount) abort() {
	if m.abandoned {
		return
	}
	m.abandoned = true
	// Closing the last descriptor does it. If a daemon that cannot be killed still has one, this does, for root.
	m.control.abort()
	m.control.close()
	m.dev.Close()
}

// detach is a lazy unmount, by fusermount3 where this process may not.
func detach(point string) error {
	err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EPERM) {
		return unmountByHelper(point)
	}
	return err
}
