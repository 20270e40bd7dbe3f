package pages

import (
	"sync"
	"unsafe"
)

// alignBytes is the alignment of payloads, offsets and memory that direct I/O
// is done with: what every disk and filesystem in use accepts.
const alignBytes = 4096

// ioBytes is how much is read or written at a time: enough for a disk's full
// speed, little enough that a page is checked while the next part comes.
const ioBytes = 1 << 20

// bufferBytes is the size of an I/O buffer: one unit, one block that may follow
// it, and what alignment adds at both ends.
const bufferBytes = ioBytes + maxBlockBytes + 2*alignBytes

// bufferPool keeps I/O buffers; their number is that of the transfers in flight.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) get() []byte {
	if b, ok := p.pool.Get().(*[bufferBytes]byte); ok {
		return b[:]
	}
	return alignedBytes(bufferBytes)
}

func (p *bufferPool) put(b []byte) { p.pool.Put((*[bufferBytes]byte)(b)) }

// alignedBytes makes n bytes whose address is a multiple of alignBytes.
func alignedBytes(n int) []byte {
	b := make([]byte, n+alignBytes)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (alignBytes - 1))
	return b[skip : skip+n : skip+n]
}

func alignUp(n int64) int64   { return (n + alignBytes - 1) &^ (alignBytes - 1) }
func alignDown(n int64) int64 { return n &^ (alignBytes - 1) }
