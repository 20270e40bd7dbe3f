package evict

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/pages"
)

// TestFlushWhileEvicting: what eviction is writing when a shutdown comes to it, and
// does not finish, is written all the same.
func TestFlushWhileEvicting(t *testing.T) {
	s := newStore(t, 40*storePage)
	s.publish(1, 20)
	began, goOn := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	s.steps.hold = func(step pages.Step) {
		if step == pages.StepCreate && held.CompareAndSwap(false, true) {
			close(began)
			<-goOn
		}
	}
	es := s.res.dirty()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.writeBack(ctx, es[:1], storing{count: &s.Counts.WrittenEvict}) })
	<-began
	wg.Go(func() {
		for end := time.Now().Add(5 * time.Second); len(s.res.dirty()) > 1 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		cancel()
		close(goOn)
	})
	if f := s.Flush(context.Background()); f.Left != 0 || f.Pages != len(es) {
		t.Errorf("%d of %d pages were written, %d left", f.Pages, len(es), f.Left)
	}
	wg.Wait()
	s.check()
}

// TestFlushWhileLearning: what was published since the start is written at a
// shutdown and by drop-ram, though the policy has not been told of it yet.
func TestFlushWhileLearning(t *testing.T) {
	for _, dropRAM := range []bool{false, true} {
		s := newStore(t, 40*storePage)
		s.ExpectLearn()
		g := s.publish(1, 20)
		if dropRAM {
			time.AfterFunc(20*time.Millisecond, func() { s.Learn(context.Background()) })
			_, err := s.DropRAM(context.Background(), func(DroppedRAM) {})
			s.must(err)
		} else if f := s.Flush(context.Background()); f.Pages != 6 || f.Left != 0 {
			t.Errorf("%d pages were written, %d left", f.Pages, f.Left)
		}
		rows, err := s.rowsOf(g)
		s.must(err)
		for _, p := range rows {
			if p.Disk() == 0 {
				t.Errorf("page %d is in RAM only", p.ID)
			}
		}
		s.Learn(context.Background())
		s.check()
	}
}
