package evict

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHomesBesideEviction: a page that is evicted in the instant in which a
// publication gives it another home does not count as in RAM afterwards.
func TestHomesBesideEviction(t *testing.T) {
	s := newStore(t, 100*storePage)
	s.publish(1, 40)
	longer := s.publish(1, 44)
	s.Flush(context.Background())
	c, err := s.idx.Contents(longer)
	s.must(err)
	rows, err := s.idx.Pages(c.Pages)
	s.must(err)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			s.giveHomes(longer, c, Brought{})
		}
	})
	evicted := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end) && !t.Failed(); {
		for _, p := range rows {
			if s.evictCopy(p.ID, s.Live.Leased) {
				evicted++
			}
		}
		for _, p := range rows {
			if s.InRAM(p.ID) && !s.hasFile(p.ID) {
				t.Errorf("page %d is said to be in RAM after %d evictions", p.ID, evicted)
			}
		}
		for _, p := range rows {
			s.must(s.read(p))
		}
	}
	stop.Store(true)
	wg.Wait()
	s.check()
}
