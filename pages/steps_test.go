package pages

import "sync"

// countSteps counts each kind of step.
type countSteps struct {
	mu     sync.Mutex
	counts map[Step]int
}

func (c *countSteps) Before(s Step, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[Step]int{}
	}
	c.counts[s]++
	return nil
}

func (c *countSteps) n(s Step) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[s]
}

// failSteps fails step number at (from 1) of those that match, once; with
// forever, and all after it.
type failSteps struct {
	mu      sync.Mutex
	at, n   int
	err     error
	forever bool
	match   func(Step, string) bool // nil: all
	failed  Step                    // what was failed
}

func (f *failSteps) arm(at int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.n, f.err, f.failed = at, 0, err, ""
}

func (f *failSteps) Before(s Step, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || f.match != nil && !f.match(s, path) {
		return nil
	}
	f.n++
	if f.n == f.at || f.forever && f.n > f.at {
		f.failed = s
		return f.err
	}
	return nil
}
