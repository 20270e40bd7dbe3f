package main

import (
	"sync"
	"time"
)

// turnstile counts the requests that are being answered, and can be held so that no further one gets in.
type turnstile struct {
	mu     sync.Mutex
	inside int
	held   bool
	empty  chan struct{} // made by hold, closed when the last is out
}

// enter lets one in; false if it is held.
func (t *turnstile) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		t.inside++
	}
	return !t.held
}

// leave lets one out that was let in.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside--
	if t.held && t.inside == 0 {
		close(t.empty)
	}
}

// hold lets nobody in any more and waits until nobody is inside, no longer than limit. It reports whether that is so.
func (t *turnstile) hold(limit time.Duration) bool {
	t.mu.Lock()
	if !t.held {
		t.held, t.empty = true, make(chan struct{})
		if t.inside == 0 {
			close(t.empty)
		}
	}
	empty := t.empty
	t.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-time.After(limit):
		return false
	}
}
