package main

import (
	"encoding/binary"
	"strings"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// testInit is FUSE_INIT as kernel 6.18 sends it, with these capabilities.
func testInit(flags uint64) initPacket {
	in := fuse.InitIn{Major: 7, Minor: 45, MaxReadAhead: 128 << 10, Flags: uint32(flags) | capInitExt, Flags2: uint32(flags >> 32)}
	in.Length, in.Opcode, in.Unique = uint32(unsafe.Sizeof(in)), opInit, 2
	return append(initPacket(nil), unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in))...)
}

func TestInitPacket(t *testing.T) {
	p := testInit(fuse.CAP_ASYNC_READ | fuse.CAP_HAS_RESEND | fuse.CAP_PASSTHROUGH)
	if err := p.valid(); err != nil || !p.canResend() {
		t.Errorf("valid: %v, canResend: %v", err, p.canResend())
	}
	q := p.masked(fuse.CAP_ASYNC_READ | fuse.CAP_PASSTHROUGH | fuse.CAP_BIG_WRITES)
	if got, want := q.flags(), uint64(fuse.CAP_ASYNC_READ|fuse.CAP_PASSTHROUGH|capInitExt); got != want {
		t.Errorf("masked flags are %#x, want %#x", got, want)
	}
	if q.canResend() || !p.canResend() {
		t.Errorf("masked changed the original, or not the copy")
	}
	old := p[:minInitBytes] // before Linux 5.17 there were no more than 32 capabilities
	if err := old.valid(); err != nil || old.canResend() {
		t.Errorf("an old kernel's INIT: %v, canResend %v", err, old.canResend())
	}
	if got := old.masked(fuse.CAP_BIG_WRITES); len(got) != len(old) {
		t.Errorf("masked changed its length to %d", len(got))
	}
	for what, bad := range map[string]initPacket{"empty": {}, "short": p[:40], "no INIT": append(initPacket{0, 0, 0, 0, 3}, p[5:]...)} {
		if bad.valid() == nil {
			t.Errorf("%s is valid", what)
		}
	}
}

func TestInitReply(t *testing.T) {
	r := make(initReply, outHeaderBytes+int(unsafe.Sizeof(fuse.InitOut{})))
	out := (*fuse.InitOut)(unsafe.Pointer(&r[outHeaderBytes]))
	out.Flags, out.Flags2, out.MaxWrite = fuse.CAP_BIG_WRITES, uint32(fuse.CAP_PASSTHROUGH>>32), 1<<20
	if err := r.valid(); err != nil || r.flags() != fuse.CAP_BIG_WRITES|fuse.CAP_PASSTHROUGH || r.maxWrite() != 1<<20 {
		t.Errorf("valid %v, flags %#x, max write %d", err, r.flags(), r.maxWrite())
	}
	refused := -int32(unix.EIO)
	binary.NativeEndian.PutUint32(r[4:], uint32(refused))
	if err := r.valid(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a refusal is valid: %v", err)
	}
	for n := range outHeaderBytes + 20 {
		if r[:n].valid() == nil {
			t.Errorf("a reply of %d bytes is valid", n)
		}
	}
}

func TestReplyBytes(t *testing.T) {
	read := fuse.ReadIn{Size: 1 << 20}
	read.Opcode = opRead
	request := unsafe.Slice((*byte)(unsafe.Pointer(&read)), unsafe.Sizeof(read))
	if n := replyBytes(request); n < 1<<20+outHeaderBytes || n > 1<<20+requestRoom {
		t.Errorf("READ of 1 MiB: %d", n)
	}
	if n := replyBytes(request[:44]); n > smallBytes {
		t.Errorf("a READ that is cut off: %d", n)
	}
	xattr := fuse.GetXAttrIn{Size: 64 << 10}
	xattr.Opcode = opGetxattr
	if n := replyBytes(unsafe.Slice((*byte)(unsafe.Pointer(&xattr)), unsafe.Sizeof(xattr))); n < 64<<10 {
		t.Errorf("GETXATTR of 64 KiB: %d", n)
	}
}
