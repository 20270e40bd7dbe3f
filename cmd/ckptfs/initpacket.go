package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The kernel sends FUSE_INIT once per mount. The keeper keeps that packet and shows it to every daemon; only the
// first daemon's reply goes to the kernel, and decides for the life of the mount.

// initPacket is a FUSE_INIT request as it was read from /dev/fuse.
type initPacket []byte

// initReply is a daemon's answer to it, as it is written to /dev/fuse.
type initReply []byte

var (
	offInFlags  = int(unsafe.Offsetof(fuse.InitIn{}.Flags))
	offInFlags2 = int(unsafe.Offsetof(fuse.InitIn{}.Flags2))
)

const (
	outHeaderBytes = int(unsafe.Sizeof(fuse.OutHeader{}))
	offOutFlags    = outHeaderBytes + int(unsafe.Offsetof(fuse.InitOut{}.Flags))
	offOutMaxWrite = outHeaderBytes + int(unsafe.Offsetof(fuse.InitOut{}.MaxWrite))
	offOutFlags2   = outHeaderBytes + int(unsafe.Offsetof(fuse.InitOut{}.Flags2))
)

const (
	opInit       = 26
	capInitExt   = fuse.CAP_INIT_EXT // Flags2 is there; every daemon sets it
	minInitBytes = 56                // header and four words: what kernels before 7.36 send
)

var native = binary.NativeEndian

// valid checks that p is a FUSE_INIT request of a protocol that is understood.
func (p initPacket) valid() error {
	if len(p) < minInitBytes || native.Uint32(p[4:]) != opInit {
		return fmt.Errorf("the kernel's first request is not FUSE_INIT (%d bytes)", len(p))
	}
	if major := native.Uint32(p[unsafe.Offsetof(fuse.InitIn{}.Major):]); major != 7 {
		return fmt.Errorf("the kernel speaks version %d of the FUSE protocol, not 7", major)
	}
	return nil
}

// flags are the capabilities that the kernel offers.
func (p initPacket) flags() uint64 {
	flags := uint64(native.Uint32(p[offInFlags:]))
	if flags&capInitExt != 0 && len(p) >= offInFlags2+4 {
		flags |= uint64(native.Uint32(p[offInFlags2:])) << 32
	}
	return flags
}

// canResend reports whether the kernel sends the requests again that a dead daemon had not answered (7.40, Linux 6.9).
func (p initPacket) canResend() bool { return p.flags()&fuse.CAP_HAS_RESEND != 0 }

// masked returns a copy of p that offers nothing beyond allowed, so that a newer daemon does not count on
// capabilities which the first one did not take.
func (p initPacket) masked(allowed uint64) initPacket {
	q := append(initPacket(nil), p...)
	flags := p.flags() & (allowed | capInitExt)
	native.PutUint32(q[offInFlags:], uint32(flags))
	if len(q) >= offInFlags2+4 {
		native.PutUint32(q[offInFlags2:], uint32(flags>>32))
	}
	return q
}

// valid checks that the daemon accepted the INIT.
func (r initReply) valid() error {
	if len(r) < outHeaderBytes {
		return fmt.Errorf("the daemon's reply to FUSE_INIT has %d bytes", len(r))
	}
	if errno := int32(native.Uint32(r[4:])); errno != 0 {
		return fmt.Errorf("the daemon refused FUSE_INIT: %w", unix.Errno(-errno))
	}
	if len(r) < offOutFlags2+4 {
		return errors.New("the daemon's reply to FUSE_INIT is too short")
	}
	return nil
}

// flags are the capabilities that were taken.
func (r initReply) flags() uint64 {
	return uint64(native.Uint32(r[offOutFlags:])) | uint64(native.Uint32(r[offOutFlags2:]))<<32
}

// maxWrite is the largest write request in bytes.
func (r initReply) maxWrite() int { return int(native.Uint32(r[offOutMaxWrite:])) }
