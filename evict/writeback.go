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
	due, rows := t.due(es, how)
	work := make(chan int)
	var mu sync.Mutex
	var done []written
	var wg sync.WaitGroup
	for range min(max(t.Writers, 1), max(len(due), 1)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range work {
				if n, ok := t.writeOne(ctx, due[i], rows[i], how); ok {
					mu.Lock()
					done = append(done, written{rows[i], n})
					mu.Unlock()
				}
			}
		}()
	}
	for i := range due {
		if ctx.Err() != nil {
			break
		}
		if rows[i] != nil { // else it went meanwhile
			work <- i
		}
	}
	close(work)
	wg.Wait()
	if len(done) > 0 {
		t.record(done)
	}
}

// due chooses the pages whose time it is to be written, with their rows.
func (t *Tiers) due(es []*resident, how storing) (due []*resident, rows []*index.Page) {
	now := t.now()
	var ids []pages.ID
	for _, e := range es {
		if e.dirty() && (how.again || e.failed().retryAt <= now) {
			due, ids = append(due, e), append(ids, e.id)
		}
	}
	rows, err := t.Index.Pages(ids)
	if err != nil {
		t.Log.Warn("pages that are to be written to disk could not be looked up", "pages", len(ids), "error", err)
		return nil, nil
	}
	return due, rows
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
	gone, err := t.setDisk(changes)
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

// setDisk records what the disk tier has.
func (t *Tiers) setDisk(changes []index.DiskChange) (gone []pages.ID, err error) {
	if gone, err = t.Index.SetDisk(changes); err != nil {
		return nil, err
	}
	ids := make([]pages.ID, len(changes))
	for i, c := range changes {
		ids[i] = c.ID
	}
	t.followDisk(ids)
	return gone, nil
}

// followDisk tells the residency what the index says of disk copies.
func (t *Tiers) followDisk(ids []pages.ID) {
	rows, err := t.Index.Pages(ids)
	if err != nil {
		t.Log.Warn("pages could not be looked up; some of them may be written to disk again", "pages", len(ids), "error", err)
		return
	}
	for _, p := range rows {
		if p != nil {
			t.res.followDisk(p)
		}
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
func (t *Tiers) writeOne(ctx context.Context, e *resident, p *index.Page, how storing) (stored int64, ok bool) {
	if !t.res.setWriting(e, true) {
		return 0, false
	}
	defer t.res.setWriting(e, false)
	t.yield(ctx)
	stored, err := t.store(ctx, e.id, p.Key, p.Bytes, how, how.onBehalf(e))
	if errors.Is(err, errNotInRAM) {
		return 0, false // its row went meanwhile
	}
	if _, there := t.res.homeOf(e.id); err != nil && !there {
		return 0, false // its generation went to make room for others
	}
	if err != nil {
		t.failed(e, p, err)
		return 0, false
	}
	e.failures.Store(nil)
	return stored, true
}

func (t *Tiers) failed(e *resident, p *index.Page, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	fails := e.failed().n + 1 // nobody else writes it
	all := t.Counts.WriteFailures.Add(1)
	wait := min(firstBackoff<<min(fails-1, 16), maxBackoff)
	e.failures.Store(&failures{fails, t.now() + wait})
	now := max(int64(t.now()), 1)
	if last := t.failLogged.Load(); (last == 0 || now-last >= int64(failLogEvery)) && t.failLogged.CompareAndSwap(last, now) {
		t.Log.Warn("a page could not be written to disk; it stays in RAM", "key", p.Key, "bytes", p.Bytes, "tries", fails, "failures", all, "error", err)
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
