package evict

import (
	"context"
	"slices"
	"testing"
	"time"

	"ckptfs/evict/retention"
	"ckptfs/index"
)

// supersede supersedes g in the index, as of a publication.
func (s *store) supersede(g *index.Generation, by *index.Generation, state index.State) {
	s.t.Helper()
	s.must(s.idx.SetState([]index.StateChange{{Generation: g, State: state, By: by.ID}}))
}

// tellSuperseded has the policy believe it.
func (s *store) tellSuperseded(g *index.Generation) {
	s.lockPolicy()
	defer s.policy.Unlock()
	s.policy.Published(s.now(), retention.Generation{ID: 1 << 40, Identity: 99}, []retention.ID{retention.ID(g.ID)})
}

func (s *store) published(g *index.Generation) bool { return s.idx.GenerationByID(g.ID) != nil }

// TestDropAsksTheIndex: the policy may not have heard yet that a generation is
// current again. Then it is written, not dropped.
func TestDropAsksTheIndex(t *testing.T) {
	s := newStore(t, 40*storePage)
	g, other := s.publish(1, 12), s.publish(2, 12)
	s.tellSuperseded(g)
	s.MakeRoom(context.Background(), 40*storePage)
	s.MakeRoom(context.Background(), 40*storePage)
	if !s.published(g) || !s.published(other) || s.Counts.DroppedSuperseded.Load() != 0 {
		t.Fatal("a current generation was dropped")
	}
	s.wantAllOnDisk()
}

// TestDropWhenTheClockWentBack: a lookup in what is now the future is no reason
// to keep a superseded generation till then.
func TestDropWhenTheClockWentBack(t *testing.T) {
	s := newStore(t, 40*storePage)
	g := s.publish(1, 12)
	s.idx.Touch(g, time.Now().Add(time.Hour).UnixNano())
	next := s.publish(2, 12)
	s.supersede(g, next, index.Superseded)
	s.tellSuperseded(g)
	s.MakeRoom(context.Background(), storePage)
	if s.published(g) || s.Counts.DroppedSuperseded.Load() == 0 {
		t.Error("a superseded generation was kept")
	}
	s.check()
}

// TestDropSparesWhatIsLookedUp: what was looked up since the plan was made, is
// open, or pinned, is not dropped.
func TestDropSparesWhatIsLookedUp(t *testing.T) {
	s := newStore(t, 60*storePage)
	next := s.publish(9, 12)
	var gs []*index.Generation
	for c := range 4 {
		g := s.publish(c, 12)
		s.supersede(g, next, index.Superseded)
		gs = append(gs, g)
	}
	planned := s.idx.Recency()
	s.idx.Touch(gs[0], 1)
	s.supersede(gs[0], next, index.Superseded)
	ids, err := s.idx.PageIDs(gs[1])
	s.must(err)
	s.Live.Open(ids[0], storePage)
	s.must(s.idx.SetPin(gs[2], true, 0))
	for _, g := range gs {
		s.drop(g.ID, retention.ReasonSuperseded, planned)
	}
	for n, want := range []bool{true, true, true, false} {
		if s.published(gs[n]) != want {
			t.Errorf("generation %d: published is %v", n, !want)
		}
	}
	s.Live.Close(ids[0])
	s.check()
}

// TestPinnedSuperseded: it may not be dropped, so that RAM gets free it is written.
func TestPinnedSuperseded(t *testing.T) {
	s := newStore(t, 40*storePage)
	g, next := s.publish(1, 12), s.publish(2, 12)
	s.supersede(g, next, index.Superseded)
	s.tellSuperseded(g)
	s.must(s.idx.SetPin(g, true, 0))
	s.MakeRoom(context.Background(), 40*storePage)
	if !s.published(g) {
		t.Fatal("a pinned generation was dropped")
	}
	s.wantAllOnDisk()
}

// TestDiskBoundOrder: superseded generations go first, then the coldest; as
// wholes; one that would free nothing stays, and so do shared pages.
func TestDiskBoundOrder(t *testing.T) {
	s := newStore(t, 100*storePage)
	cold, root := s.publish(1, 12), s.publish(2, 12) // root shares its attention pages with long
	old := s.publish(3, 12)
	long, hot := s.publish(2, 24), s.publish(4, 12)
	s.must(s.idx.SetPin(hot, true, 0))
	s.Flush(context.Background())
	s.MakeRoom(context.Background(), 100*storePage)
	s.supersede(old, hot, index.Superseded)
	s.tellSuperseded(old)
	var went []*index.Generation
	all := []*index.Generation{cold, root, old, long, hot}
	for range all {
		s.bounding.Lock()
		s.giveUp(context.Background(), 1, 0)
		s.bounding.Unlock()
		for _, g := range all {
			if !s.published(g) && !slices.Contains(went, g) {
				went = append(went, g)
			}
		}
	}
	if !slices.Equal(went, []*index.Generation{old, cold, root, long}) {
		names := map[*index.Generation]string{cold: "cold", root: "root", old: "old", long: "long", hot: "hot"}
		var order []string
		for _, g := range went {
			order = append(order, names[g])
		}
		t.Errorf("they went in the order %v", order)
	}
	if n, err := s.readAll(); err != nil || n != 1 {
		t.Errorf("%d can be read: %v", n, err)
	}
	s.check()
}

// TestLearnLineage: fork points, what is superseded, and how long, outlive the
// daemon.
func TestLearnLineage(t *testing.T) {
	s := newStore(t, 100*storePage)
	fork, old, tip := s.publish(1, 12), s.publish(2, 12), s.publish(3, 12)
	s.supersede(fork, tip, index.PassedFork)
	s.supersede(old, tip, index.Superseded)
	s.kill()
	s.open()
	order := s.Coldest()
	if want := []index.ObjectID{old.ID, fork.ID, tip.ID}; !slices.Equal(order, want) {
		t.Errorf("the coldest are %v, want %v", order, want)
	}
	s.lockPolicy()
	late := slices.Collect(s.policy.Coldest(s.now() + 2*time.Minute))
	s.policy.Unlock()
	if late[0] != retention.ID(fork.ID) || late[2] != retention.ID(tip.ID) {
		t.Errorf("after the grace they are %v, want the fork point among the first", late)
	}
}

// TestFlushOrder: current pages first, then those of superseded fork points in
// their grace, then the rest.
func TestFlushOrder(t *testing.T) {
	s := newStore(t, 100*storePage)
	past, old, graced, tip := s.publish(1, 8), s.publish(2, 8), s.publish(3, 8), s.publish(4, 8)
	s.supersede(graced, tip, index.PassedFork)
	s.supersede(old, tip, index.Superseded)
	s.supersede(past, tip, index.PassedFork)
	order := func() (gs []*index.Generation) {
		es, warmest := s.flushOrder()
		for _, e := range es {
			if g := s.idx.GenerationByID(warmest[e.id]); !slices.Contains(gs, g) {
				gs = append(gs, g)
			}
		}
		return gs
	}
	if got := order(); !slices.Equal(got, []*index.Generation{tip, graced, past, old}) {
		t.Errorf("the order is %v", got)
	}
	s.Grace = 0
	if got := order(); !slices.Equal(got, []*index.Generation{tip, graced, old, past}) {
		t.Errorf("when the grace is over it is %v", got)
	}
}

// wantAllOnDisk wants every page to have left RAM, and to be read from disk.
func (s *store) wantAllOnDisk() {
	s.t.Helper()
	if n := s.Resident(); n != 0 {
		s.t.Errorf("%d pages are left in RAM", n)
	}
	if _, err := s.readAll(); err != nil {
		s.t.Error(err)
	}
	s.sweepBlobs(context.Background(), 100)
	s.check()
}
