package fusefs

import (
	"context"
	"sync"
)

// gate counts the requests that change something, so that a daemon about to be
// replaced can let them finish. Requests that come after it is shut wait for
// ever: the kernel sends them again to the next daemon.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{}
}

func (g *gate) enter() {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		select {}
	}
	g.inside++
	g.mu.Unlock()
}

func (g *gate) leave() {
	g.mu.Lock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
}

// shut closes the gate and waits until nobody is inside.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.empty = make(chan struct{})
	if g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
