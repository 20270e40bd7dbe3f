package evict

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// TestLeasedMeanwhile: a generation that is leased while eviction writes pages
// stays in RAM, and so it does while RAM is emptied for an operator.
func TestLeasedMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*store)
	}{
		{"evict", func(s *store) { s.MakeRoom(context.Background(), 100*storePage) }},
		{"drop-ram", func(s *store) {
			_, err := s.DropRAM(context.Background(), func(DroppedRAM) {})
			s.must(err)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, 100*storePage)
			var gs []*index.Generation
			for c := range 6 {
				gs = append(gs, s.publish(c, 12))
			}
			var mu sync.Mutex
			var leased []index.ObjectID
			s.Leases = func() []index.ObjectID {
				mu.Lock()
				defer mu.Unlock()
				return leased
			}
			var once sync.Once
			s.steps.hold = func(step pages.Step) {
				if step == pages.StepWrite {
					once.Do(func() {
						mu.Lock()
						defer mu.Unlock()
						for _, g := range gs {
							leased = append(leased, g.ID)
						}
					})
				}
			}
			in := s.Resident()
			c.run(s)
			if n := s.Resident(); n != in {
				t.Errorf("%d of %d pages are left in RAM, all are leased", n, in)
			}
			s.sweepBlobs(context.Background(), 100)
			s.check()
		})
	}
}

// TestTroubleHasPassed: pages whose writes failed, and that wait for their time to
// be tried again, are written when RAM is needed and the disk works again; they are
// given up only while it does not.
func TestTroubleHasPassed(t *testing.T) {
	for _, passed := range []bool{true, false} {
		s := newStore(t, 40*storePage)
		for c := range 5 {
			s.publish(c, 12)
		}
		s.steps.arm(1, syscall.EIO, true)
		for range maxFails {
			s.Flush(context.Background())
		}
		if passed {
			s.steps.disarm()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s.must(s.Budget.Reserve(ctx, 30*storePage, func(n int64) { s.MakeRoom(ctx, n) }))
		cancel()
		s.steps.disarm()
		if n := s.idx.Count(); (n == 5) != passed {
			t.Errorf("the trouble has passed: %v; %d generations are left", passed, n)
		}
		s.Budget.Unreserve(30 * storePage)
		s.Flush(context.Background())
		s.sweepBlobs(context.Background(), 100)
		s.check()
	}
}
