package main

import (
	"fmt"
	"log/slog"
	"os"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fuseOptions are what is agreed with the kernel and how go-fuse serves.
func fuseOptions(cfg *daemonConfig, log *slog.Logger) *fuse.MountOptions {
	return &fuse.MountOptions{
		Name: "ckptfs", FsName: "ckptfs",
		MaxBackground: 128,
		MaxWrite:      cfg.MaxWrite,
		MaxStackDepth: 1, // passthrough to a tmpfs, which lies on nothing
		Logger:        fuseLogger(log),
		ExtraCapabilities: fuse.CAP_READDIRPLUS_AUTO |
			fuse.CAP_ASYNC_DIO | // parts of a large O_DIRECT read at the same time
			fuse.CAP_DIRECT_IO_ALLOW_MMAP | // shared mappings also where reads go past the page cache
			fuse.CAP_ATOMIC_O_TRUNC | // O_TRUNC is part of OPEN, so it is refused with it
			fuse.CAP_HAS_EXPIRE_ONLY |
			fuse.CAP_HAS_RESEND |
			// No file here is ever setuid, setgid or has capabilities, so there are none to drop at a write. Saying
			// so spares the kernel a GETXATTR of security.capability before each of them.
			fuse.CAP_HANDLE_KILLPRIV_V2,
		// ENOSYS to one OPEN must never mean that no further one is sent: each is a lease.
		DisabledCapabilities: fuse.CAP_NO_OPEN_SUPPORT | fuse.CAP_NO_OPENDIR_SUPPORT,
	}
}

// takeOver puts /dev/fuse where go-fuse's server has it, for notifications and passthrough, and has the kernel send again what a dead daemon had read
// and not answered. That is done before anything is read, so that nothing of our own is sent twice.
func takeOver(cfg *daemonConfig, fs filesystem) (passthrough bool, err error) {
	if err := unix.Dup3(daemonFuseFD, daemonServeFD, unix.O_CLOEXEC); err != nil {
		return false, os.NewSyscallError("dup3", err)
	}
	if cfg.Passthrough != passthroughOff {
		err := probePassthrough(cfg.RAMDir)
		passthrough = err == nil
		if err != nil && cfg.Passthrough == passthroughOn {
			return false, withCode(exitMount, fmt.Errorf("passthrough is not to be had (kernel 6.9 and CAP_SYS_ADMIN are needed): %w", err))
		}
	}
	if s, ok := fs.(passthroughSetter); ok {
		s.SetPassthrough(passthrough)
	}
	if !cfg.FreshMount && cfg.Resend {
		if err := resend(); err != nil {
			return false, fmt.Errorf("asking the kernel to send requests again: %w", err)
		}
	}
	return passthrough, nil
}

// resend writes the notification FUSE_NOTIFY_RESEND, which is nothing but a header: its length, the code, no request.
func resend() error {
	var header [outHeaderBytes]byte
	native.PutUint32(header[0:], uint32(len(header)))
	native.PutUint32(header[4:], uint32(-fuse.NOTIFY_RESEND))
	_, err := unix.Write(daemonFuseFD, header[:])
	return err
}

// Requests of the ioctl interface of /dev/fuse, from linux/fuse.h.
const (
	iocBackingOpen  = 0x4010e501
	iocBackingClose = 0x4004e502
)

// probePassthrough registers a file in dir as a backing file and takes that back. An error tells why it cannot be.
func probePassthrough(dir string) error {
	fd, err := openRetry(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	backing := fuse.BackingMap{Fd: int32(fd)}
	id, _, errno := unix.Syscall(unix.SYS_IOCTL, daemonFuseFD, iocBackingOpen, uintptr(unsafe.Pointer(&backing)))
	if errno != 0 {
		return os.NewSyscallError("FUSE_DEV_IOC_BACKING_OPEN", errno)
	}
	closing := uint32(id)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, daemonFuseFD, iocBackingClose, uintptr(unsafe.Pointer(&closing))); errno != 0 {
		return os.NewSyscallError("FUSE_DEV_IOC_BACKING_CLOSE", errno)
	}
	return nil
}

// raiseFileLimit lets the daemon open as many files as it may; root gives itself a million.
func raiseFileLimit(log *slog.Logger) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	want := unix.Rlimit{Cur: limit.Max, Max: limit.Max}
	if million := uint64(1 << 20); want.Max < million {
		more := unix.Rlimit{Cur: million, Max: million}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &more) == nil {
			want = more
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		log.Warn("the limit of open files cannot be raised", "limit", limit.Cur, "err", err)
	}
}
