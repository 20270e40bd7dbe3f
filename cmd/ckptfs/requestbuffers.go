package main

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// requestBuffers are the memory into which the kernel's requests are read. It is there and stays there: no access to
// it can fail, even that of a process that is just being killed (see device).
type requestBuffers struct {
	bytes int // of each
	keep  int // so many are kept when they are not in use

	mu   sync.Mutex
	free [][]byte
}

// newRequestBuffers makes count buffers at once and more when more are needed.
func newRequestBuffers(bytes, count int) (*requestBuffers, error) {
	r := &requestBuffers{bytes: bytes, keep: 2 * count}
	for range count {
		b, err := residentMemory(bytes)
		if err != nil {
			return nil, err
		}
		r.free = append(r.free, b)
	}
	return r, nil
}

// take gives a buffer that nobody else has.
func (r *requestBuffers) take() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		b := r.free[n-1]
		r.free = r.free[:n-1]
		return b, nil
	}
	return residentMemory(r.bytes)
}

// put gives a buffer back.
func (r *requestBuffers) put(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) < r.keep {
		r.free = append(r.free, b)
		return
	}
	unix.Munmap(b)
}

func residentMemory(bytes int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("%d bytes for requests: %w", bytes, err)
	}
	// Against swap, and against being taken away for a moment to become part of a huge page. Both are rare, and a
	// refusal is no error.
	unix.Mlock(b)
	unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	return b, nil
}
