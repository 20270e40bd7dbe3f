package evict

import (
	"context"
	"testing"

	"ckptfs/index"
)

// TestBlobOfTwoRetirements: where two retire a generation and one of them comes to
// nothing, no blob is written before the other has ended.
func TestBlobOfTwoRetirements(t *testing.T) {
	s := newStore(t, 40*storePage)
	g := s.publish(1, 8)
	s.Flush(context.Background())
	s.must(s.idx.SetPin(g, true, 0))
	gs := []*index.Generation{g}
	other := s.Retiring(gs)
	done := s.Retiring(gs)
	_, err := s.idx.RetireUnpinned(gs, "a test", 1, nil)
	s.must(err)
	done()
	s.sweepBlobs(context.Background(), 100)
	r, err := s.idx.Retire(gs, "a test", 1, 0, s.Live.Keep)
	s.must(err)
	other()
	for _, p := range r.Dropped {
		s.Live.Dead(p)
	}
	s.Retired(g.ID)
	s.check()
}
