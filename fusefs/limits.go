package fusefs

import (
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ckptfs/index"
)

// What clients can make the daemon hold is bounded: open handles, so that it
// always has descriptors left for its own work, and the memory of what they are
// writing to transaction files or have been shown.

const (
	// controlHandles are kept for .ckptfs: who wants to see what is wrong must be
	// able to look when clients have everything open.
	controlHandles = 64
	// ownFiles is how many descriptors the daemon itself needs at most, beside
	// one for each staging.
	ownFiles = 256
	// maxClientBytes bounds the memory that clients can have held.
	maxClientBytes = 512 << 20
)

// handleLimit is how many handles clients may have: what was asked for, and each
// may need a descriptor of the daemon.
func handleLimit(wanted, stagings int, files uint64) int {
	if files == 0 {
		return wanted
	}
	most := int64(min(files, 1<<40)) - ownFiles - int64(stagings)
	return int(max(min(int64(wanted), most), 16))
}

// mostBytes is how large a file may be made by writing. Files that are no pages lie
// in RAM that nobody has reserved.
func mostBytes(k nodeKind) uint64 {
	switch k {
	case kindTokens:
		return 4 * index.MaxTokens
	case kindManifest:
		return index.MaxPublishedBytes
	case kindDocument:
		return index.MaxDocumentBytes
	}
	return math.MaxUint64
}

// scarce shares out the last handles: from seven eighths on, a process that has
// an eighth of all itself gets no further one, so that one client which leaves
// files open cannot take them from all. The lock is held over a look at /proc
// once a second, while handles are scarce.
type scarce struct {
	mu      sync.Mutex
	counted time.Time
	held    map[int]int    // handles by process
	process map[uint32]int // of threads
}

// scarceFor is how long a count of handles by process is good for.
const scarceFor = time.Second

// mayOpen refuses a handle to a thread: EMFILE.
func (fs *FS) mayOpen(n nodeID, tid uint32) error {
	if n.kind() == kindCommand || n.kind() == kindFixed && n != nodeRoot {
		return nil
	}
	limit := int64(fs.maxHandles)
	open := fs.handles.open.Load()
	switch {
	case open < limit-limit/8:
		return nil
	case open >= limit:
		fs.count.handlesRefused.Add(1)
		return syscall.EMFILE
	}
	if fs.scarce.take(fs, tid) > int(limit/8) {
		fs.count.handlesRefused.Add(1)
		return syscall.EMFILE
	}
	return nil
}

// take counts a handle for the process of the thread, and says how many it has
// with it.
func (s *scarce) take(fs *FS, tid uint32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := fs.now(); s.held == nil || now.Sub(s.counted) > scarceFor {
		s.counted, s.held, s.process = now, map[int]int{}, map[uint32]int{}
		fs.handles.each(func(h *handle) { s.held[s.processLocked(h.rec.pid)]++ })
	}
	p := s.processLocked(tid)
	s.held[p]++
	return s.held[p]
}

func (s *scarce) processLocked(tid uint32) int {
	p, ok := s.process[tid]
	if !ok {
		if p = processOf(tid); p == 0 {
			p = int(tid) // it has ended, or is not seen from here
		}
		s.process[tid] = p
	}
	return p
}

// clientMemory is what clients have held in the daemon's memory.
type clientMemory struct{ used atomic.Int64 }

// charge makes so many bytes what the handle holds. ENOMEM, and nothing has
// changed, if that is more than clients may have held altogether.
func (m *clientMemory) charge(h *handle, bytes int64) error {
	more := bytes - h.charged
	if m.used.Add(more) > maxClientBytes && more > 0 {
		m.used.Add(-more)
		return syscall.ENOMEM
	}
	h.charged = bytes
	return nil
}
