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
