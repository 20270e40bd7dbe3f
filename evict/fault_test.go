package evict

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"ckptfs/index"
)

// TestFailEveryDiskStep fails each disk access in turn while generations are
// published, written back, made durable, read again, retired and flushed, kills
// the store, opens it again, and looks at all of it. Nothing published may be
// lost, for RAM outlives the process, and no byte may be wrong. A run takes every
// twelfth step, beginning at random; with CKPTFS_EVERY_STEP=1 it takes all.
func TestFailEveryDiskStep(t *testing.T) {
	for _, fault := range []struct {
		name    string
		err     error
		forever bool
	}{
		{"ENOSPC", syscall.ENOSPC, false},
		{"EIO", syscall.EIO, false},
		{"EIO from then on", syscall.EIO, true},
	} {
		t.Run(fault.name, func(t *testing.T) {
			stride := 12
			switch {
			case os.Getenv("CKPTFS_EVERY_STEP") == "1":
				stride = 1
			case testing.Short():
				stride = 29
			}
			for n := 1 + rand.IntN(stride); ; n += stride {
				var done bool
				ok := t.Run(fmt.Sprint(n), func(t *testing.T) { done = failStep(t, n, fault.err, fault.forever) })
				if done || !ok {
					return
				}
			}
		})
	}
}

// failStep runs the scenario with step n failed. It reports whether there were
// fewer steps.
func failStep(t *testing.T, n int, fault error, forever bool) (done bool) {
	s := newStore(t, 40*storePage)
	s.steps.arm(n, fault, forever)
	want := s.scenario()
	steps, failed := s.steps.disarm()
	s.kill()
	s.open()
	s.must(s.Reconcile(context.Background(), false))
	s.sweepBlobs(context.Background(), 1000)
	s.check()
	gens, err := s.readAll()
	if err != nil || gens != want {
		t.Errorf("%d generations can be read, want %d: %v", gens, want, err)
	}
	s.check()
	if t.Failed() {
		t.Logf("failed was step %d of %d: %s", n, steps, failed)
	}
	return steps < n
}

// scenario does everything once. Failures of the disk are none of its own.
// It returns how many generations are published in the end.
func (s *store) scenario() (published int) {
	ctx := context.Background()
	var gs []*index.Generation
	for c := range 3 {
		gs = append(gs, s.publish(c, 10), s.publish(c, 18))
	}
	s.MakeRoom(ctx, 12*storePage)
	s.sweepBlobs(ctx, 1000)
	if rows, err := s.rowsOf(gs[5]); err == nil {
		_ = s.SaveGeneration(ctx, gs[5], rows)
	}
	_, _ = s.readAll()
	if g := s.idx.GenerationByID(gs[1].ID); g != nil {
		s.must(s.retire([]*index.Generation{g}, "for a test"))
	}
	s.publish(4, 20)
	s.Flush(ctx)
	return s.idx.Count()
}

func (s *store) rowsOf(g *index.Generation) ([]*index.Page, error) {
	ids, err := s.idx.PageIDs(g)
	if err != nil {
		return nil, err
	}
	return s.idx.Pages(ids)
}
