package evict

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"ckptfs/pages"
)

// Work is what the tiers do that takes the disk's time.
type Work int

// The kinds of work.
const (
	WorkLoad      Work = iota // a page is read into RAM
	WorkWriteBack             // a page is written to disk
)

// Trouble says that the disk tier does not do its work, and since when.
type Trouble struct {
	Work  Work
	Since time.Time
	Err   error // of the last try
}

// ErrHung says that the disk has not answered for hungAfter.
var ErrHung = errors.New("the disk does not answer")

const (
	hungAfter = 20 * time.Second
	// probeEvery is how often a tier in trouble is tried when nobody else does.
	probeEvery = 5 * time.Second
)

// health watches what the disk is asked to do. The lock is a leaf.
type health struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		next    uint64
		pending [2]map[uint64]time.Time // by Work: when what is under way began
		failing [2]*Trouble             // by Work: since its last success
	}
}

func newHealth(now func() time.Time) *health {
	h := &health{now: now}
	for i := range h.mu.pending {
		h.mu.pending[i] = map[uint64]time.Time{}
	}
	return h
}

// begin notes that work begins; done is called with how it ended, and tells how
// long it took.
func (h *health) begin(w Work) (done func(error) time.Duration) {
	began := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.mu.next
	h.mu.next++
	h.mu.pending[w][id] = began
	return func(err error) time.Duration {
		now := h.now()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.mu.pending[w], id)
		h.endedLocked(w, now, err)
		return now.Sub(began)
	}
}

// endedLocked: that a page is lost, that it was not wanted any more, or that RAM
// had no room for it is no trouble of the disk.
func (h *health) endedLocked(w Work, now time.Time, err error) {
	switch {
	case err == nil:
		h.mu.failing[w] = nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, pages.ErrLost), errors.Is(err, pages.ErrAbsent),
		w == WorkLoad && errors.Is(err, syscall.ENOSPC):
	case h.mu.failing[w] == nil:
		h.mu.failing[w] = &Trouble{Work: w, Since: now, Err: err}
	default:
		h.mu.failing[w] = &Trouble{Work: w, Since: h.mu.failing[w].Since, Err: err}
	}
}

// troubles lists what does not work now.
func (h *health) troubles() []Trouble {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []Trouble
	for w := range h.mu.pending {
		oldest := h.now()
		for _, began := range h.mu.pending[w] {
			if began.Before(oldest) {
				oldest = began
			}
		}
		switch waited := h.now().Sub(oldest); {
		case waited >= hungAfter:
			list = append(list, Trouble{Work(w), oldest, fmt.Errorf("%w for %v", ErrHung, waited.Round(time.Second))})
		case h.mu.failing[w] != nil:
			list = append(list, *h.mu.failing[w])
		}
	}
	return list
}

// Troubles lists what the disk tier does not do now. It does no I/O.
func (t *Tiers) Troubles() []Trouble { return t.health.troubles() }

// probeLoop tries a disk tier in trouble, so that the trouble ends when it has,
// also while there is nothing to read and to write.
func (t *Tiers) probeLoop(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if len(t.Troubles()) > 0 {
			t.probe(ctx)
		}
	}
}

// probe reads a small file of the tier and writes it again as it was, or as it
// should be: at the start it may not have been possible.
func (t *Tiers) probe(ctx context.Context) {
	done := t.health.begin(WorkLoad)
	raw, err := t.Disk.ReadBlob(startsBlob)
	if errors.Is(err, pages.ErrAbsent) || errors.Is(err, pages.ErrLost) {
		var starts int64
		_, starts, err = t.Index.Tier()
		raw = startsCount(starts)
	}
	if done(err); err != nil {
		return
	}
	done = t.health.begin(WorkWriteBack)
	done(t.Disk.PutBlob(ctx, startsBlob, raw, false))
}
