package pages

import (
	"sync"
	"time"
)

// diskSpeed is what the disk has been seen to do. A write can be slow for many
// reasons and fast for one, so the best of late counts: a faster write is
// believed at once, slower ones by and by.
type diskSpeed struct {
	fixed float64 // configured; 0: observed
	mu    struct {
		sync.Mutex
		best float64
	}
}

// minObservedBytes is the least that a write must have to tell something.
const minObservedBytes = 512 << 10

func (s *diskSpeed) observe(n int, took time.Duration) {
	if n < minObservedBytes || took <= 0 {
		return
	}
	now := float64(n) / took.Seconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.best = max(now, s.mu.best+(now-s.mu.best)/64)
}

// bytesPerSec is 0 as long as nothing is known.
func (s *diskSpeed) bytesPerSec() float64 {
	if s.fixed > 0 {
		return s.fixed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.best
}
