package main

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// The operations whose reply has a length that the request decides (include/uapi/linux/fuse.h).
const (
	opRead        = 15
	opGetxattr    = 22
	opListxattr   = 23
	opReaddir     = 28
	opIoctl       = 39
	opReaddirplus = 44
)

func opcodeOf(request []byte) uint32 { return native.Uint32(request[4:]) }

// replyBytes is the most that the reply to a request may take.
func replyBytes(request []byte) int {
	field := func(offset uintptr) int {
		if len(request) < int(offset)+4 {
			return 0
		}
		return int(native.Uint32(request[offset:]))
	}
	const fixed = 512 // out-header and the longest of the structures
	switch opcodeOf(request) {
	case opRead, opReaddir, opReaddirplus:
		return fixed + field(unsafe.Offsetof(fuse.ReadIn{}.Size))
	case opGetxattr, opListxattr:
		return fixed + field(unsafe.Offsetof(fuse.GetXAttrIn{}.Size))
	case opIoctl:
		return fixed + field(unsafe.Offsetof(fuse.IoctlIn{}.OutSize))
	}
	return fixed
}

// errorReply writes a reply that is nothing but an error.
func errorReply(reply, request []byte, status fuse.Status) int {
	native.PutUint32(reply[0:], uint32(outHeaderBytes))
	native.PutUint32(reply[4:], uint32(-int32(status)))
	copy(reply[8:16], request[8:16]) // which request
	return outHeaderBytes
}
