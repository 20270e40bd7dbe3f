package evict

import (
	"context"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

// TestLookupsWaitForNoEviction does all that a lookup does while eviction is
// under way, the policy plans, and a generation is being retired.
func TestLookupsWaitForNoEviction(t *testing.T) {
	s := newStore(t, 60*storePage)
	g, victim := s.publish(1, 12), s.publish(2, 12)
	s.Flush(context.Background())
	s.MakeRoom(context.Background(), 60*storePage) // the pages are on disk only
	c, err := s.idx.Contents(g)
	s.must(err)
	rows, err := s.idx.Pages(c.Pages)
	s.must(err)
	looked := make(chan int)
	lookUp := func() {
		ram, disk, ok := s.Readable(rows)
		if !ok {
			disk = -1
		}
		s.idx.Touch(g, 1)
		s.Hit(g.ID)
		s.Missed(victim.ID, ReasonSuperseded)
		s.Prefetch(g, c.Layout, s.NotInRAM(c.Pages), rows)
		looked <- ram + disk
	}

	s.evicting.Lock()
	s.policy.Lock()
	retired := make(chan error)
	go func() {
		_, err := s.idx.Retire([]*index.Generation{victim}, "a test", 1, 0, func(pages.ID) bool {
			go lookUp()
			if n := <-looked; n != len(rows) {
				t.Errorf("%d of %d pages can be read", n, len(rows))
			}
			return false
		})
		retired <- err
	}()
	s.must(<-retired)
	s.policy.Unlock()
	s.evicting.Unlock()
	s.lookups.mu.Lock()
	told := len(s.lookups.told)
	s.lookups.mu.Unlock()
	if told == 0 {
		t.Error("the policy is never told of the lookups")
	}
}

// TestMemoryOfRetention: hints are counted, bounded by what is on disk, and go
// with it.
func TestMemoryOfRetention(t *testing.T) {
	s := newStore(t, 400*storePage)
	before := s.PolicyStats().Bytes
	var gs []*index.Generation
	for n := range 20 {
		gs = append(gs, s.publish(1, 4*(n+1)))
	}
	held := s.PolicyStats()
	if held.Generations != 20 || held.Bytes-before < 20*100+int64(s.Resident())*50 {
		t.Errorf("20 generations with %d pages are said to take %d bytes", s.Resident(), held.Bytes-before)
	}
	s.MakeRoom(context.Background(), 400*storePage)
	if n := s.Resident(); n != 0 || s.hints.len() != 40 {
		t.Errorf("%d pages in RAM, %d hints for 40 pages on disk", n, s.hints.len())
	}
	s.must(s.retire(gs, "a test"))
	if s.hints.len()+len(s.hints.count)+len(s.hints.moved) != 0 || s.PolicyStats().Generations != 0 {
		t.Errorf("left are %d hints, %d homes, %d moves, %+v", s.hints.len(), len(s.hints.count), len(s.hints.moved), s.PolicyStats())
	}
}
