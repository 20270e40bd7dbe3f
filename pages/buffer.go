package pages

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alignBytes is the alignment of payloads, offsets and memory that direct I/O
// is done with: what every disk and filesystem in use accepts.
const alignBytes = 4096

// hugeBytes is a huge page: of the machine's memory, and of a tmpfs file.
const hugeBytes = 2 << 20

// ioBytes is how much is read or written at a time: enough for a disk's full
// speed, little enough that a page is checked while the next part comes. As it is
// a huge page, a page file of the RAM tier gets each of its own by one write:
// one that is written in parts is filled with zeros first.
const ioBytes = hugeBytes

// bufferBytes is the size of an I/O buffer: one unit, one block that a writer
// adds, and what alignment adds at both ends.
const bufferBytes = ioBytes + defaultBlockBytes + 2*alignBytes

// ioBuffer is memory of bufferBytes whose first ioBytes are one huge page where
// the kernel has one. A disk is told of memory in runs that are contiguous; of
// scattered pages a unit takes hundreds of them, which is all that a virtual
// disk's queue has.
type ioBuffer struct{ b []byte }

func newIOBuffer() *ioBuffer {
	m, err := unix.Mmap(-1, 0, bufferBytes+hugeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return &ioBuffer{alignedBytes(bufferBytes)}
	}
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // slower without, no worse
	b := &ioBuffer{aligned(m, bufferBytes, hugeBytes)}
	runtime.AddCleanup(b, func(m []byte) { _ = unix.Munmap(m) }, m)
	return b
}

// bufferPool keeps I/O buffers; their number is that of the transfers in flight.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) get() *ioBuffer {
	if b, ok := p.pool.Get().(*ioBuffer); ok {
		return b
	}
	return newIOBuffer()
}

func (p *bufferPool) put(b *ioBuffer) {
	if b != nil {
		p.pool.Put(b)
	}
}

// alignedBytes makes n bytes whose address is a multiple of alignBytes.
func alignedBytes(n int) []byte { return aligned(make([]byte, n+alignBytes), n, alignBytes) }

// aligned is the first n bytes of b whose address is a multiple of align.
func aligned(b []byte, n, align int) []byte {
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & uintptr(align-1))
	return b[skip : skip+n : skip+n]
}

func alignUp(n int64) int64   { return (n + alignBytes - 1) &^ (alignBytes - 1) }
func alignDown(n int64) int64 { return n &^ (alignBytes - 1) }
