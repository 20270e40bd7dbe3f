package client

import (
	"context"
	"time"
)

// backoff spaces the repetitions of a call whose success depends on another
// process. It doubles from least to most.
type backoff struct {
	next, most time.Duration
}

// newBackoff suits waits that usually end within milliseconds: another rank
// that is about to finish.
func newBackoff() backoff {
	return backoff{next: time.Millisecond, most: 50 * time.Millisecond}
}

// wait sleeps for the next interval, or until ctx ends, whose error it returns.
func (b *backoff) wait(ctx context.Context) error {
	timer := time.NewTimer(b.next)
	defer timer.Stop()
	b.next = min(2*b.next, b.most)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
