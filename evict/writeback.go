package evict

import (
	"context"
	"errors"
	"sync"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// A page whose write-back has failed is left alone for longer and longer, up to
// maxBackoff. After maxFails in a row its generations may go if RAM is needed.
const (
	maxFails     = 3
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = time.Minute
)

// failLogEvery is how often failed writes are logged: a disk that is full fails
// them all.
const failLogEvery = 10 * time.Second

// yieldTime bounds how long one write-back lets reads from disk go first.
const yieldTime = 100 * time.Millisecond

// writeBack writes the pages to the disk tier, several at a time, and records
// it in one transaction. Pages whose last writes failed wait for their time.
func (t *Tiers) writeBack(ctx context.Context, es []*resident, how storing) {
	now := t.now()
	work := make(chan *resident)
	var mu sync.Mutex
	var done []written
	var wg sync.WaitGroup
	for range min(max(t.Writers, 1), max(len(es), 1)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for e := range work {
				if n, ok := t.writeOne(ctx, e, how); ok {
					mu.Lock()
					done = append(done, written{e.page, n})
					mu.Unlock()
				}
			}
		}()
	}
	for _, e := range es {
		if ctx.Err() != nil {
			break
		}
		if e.page.Disk() == 0 && (how.again || e.retryAt.Load() <= int64(now)) {
			work <- e
		}
	}
	close(work)
	wg.Wait()
	if len(done) > 0 {
		t.record(done)
	}
}

// written is a page that has an object on disk, and what that takes there.
type written struct {
	page   *index.Page
	stored int64
}

// record keeps which pages are on disk now. Objects of pages that went while
// they were written go too.
func (t *Tiers) record(done []written) {
	changes := make([]index.DiskChange, len(done))
	keys := make(map[pages.ID]pages.Key, len(done))
	for i, w := range done {
		changes[i] = index.DiskChange{ID: w.page.ID, Bytes: w.stored}
		keys[w.page.ID] = w.page.Key
	}
	gone, err := t.Index.SetDisk(changes)
	if err != nil {
		t.Log.Warn("disk copies could not be recorded; they are found again later", "pages", len(done), "error", err)
		return
	}
	t.Counts.WrittenPages.Add(int64(len(done)))
	t.noteBlobs()
	for _, id := range gone {
		t.hints.drop(id)
		t.removeObject(keys[id])
	}
}

// removeObject removes the object of a key that no page has.
func (t *Tiers) removeObject(k pages.Key) {
	err := t.Disk.RemoveIf(k, func() bool {
		_, there, err := t.Index.PageByKey(k)
		return !there && err == nil
	})
	if err != nil {
		t.Log.Warn("a disk object that nothing needs is left for the next look", "key", k, "error", err)
	}
}

// writeOne writes one page. Reads from disk go first, for a while.
func (t *Tiers) writeOne(ctx context.Context, e *resident, how storing) (stored int64, ok bool) {
	if !t.res.setWriting(e, true) {
		return 0, false
	}
	defer t.res.setWriting(e, false)
	t.yield(ctx)
	stored, err := t.store(ctx, e.page.ID, e.page.Key, e.page.Bytes, how, how.onBehalf(e))
	if errors.Is(err, errNotInRAM) {
		return 0, false // its row went meanwhile
	}
	if _, there := t.res.homeOf(e.page.ID); err != nil && !there {
		return 0, false // its generation went to make room for others
	}
	if err != nil {
		t.failed(e, err)
		return 0, false
	}
	e.fails.Store(0)
	return stored, true
}

func (t *Tiers) failed(e *resident, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	fails := e.fails.Add(1)
	all := t.Counts.WriteFailures.Add(1)
	wait := min(firstBackoff<<min(fails-1, 16), maxBackoff)
	e.retryAt.Store(int64(t.now() + wait))
	now := max(int64(t.now()), 1)
	if last := t.failLogged.Load(); (last == 0 || now-last >= int64(failLogEvery)) && t.failLogged.CompareAndSwap(last, now) {
		t.Log.Warn("a page could not be written to disk; it stays in RAM", "key", e.page.Key, "bytes", e.page.Bytes, "tries", fails, "failures", all, "error", err)
	}
}

// yield lets reads from disk go first, but for those that wait for the room that
// this write makes.
func (t *Tiers) yield(ctx context.Context) {
	deadline := time.Now().Add(yieldTime)
	waited := func() bool { wanted, _ := t.Budget.Waiting(); return wanted > 0 }
	for t.reading.Load() > 0 && !waited() && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
