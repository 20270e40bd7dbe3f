package evict

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// loads are the pages on their way from disk to RAM: each is read once, whoever
// waits for it.
type loads struct {
	mu sync.Mutex
	m  map[pages.ID]*load
}

type load struct {
	done  chan struct{}
	inRAM bool
	err   error
	none  bool // nothing was tried: the page has no row any more
	gone  bool // nothing needs the page any more; the lock of loads guards it
}

// ErrPageLost says that a page has no good copy in any tier. Its generations
// have been retired. It is an EIO.
var ErrPageLost = fmt.Errorf("the page is lost: %w", syscall.EIO)

// Bring makes sure that a published page can be read, on behalf of somebody who
// has it open (so it cannot be evicted any more). inRAM says that the RAM tier
// has it; if not, RAM was short for too long and it is to be read from the disk
// tier. ErrPageLost, ENOENT if it was deleted in this instant, or what the disk says.
func (t *Tiers) Bring(ctx context.Context, p *index.Page) (inRAM bool, err error) {
	for {
		there, busy := t.res.find(p.ID)
		switch {
		case there:
			return true, nil
		case busy != nil:
			<-busy
			continue
		}
		if t.hasFile(p.ID) {
			// Published in this instant, or not taken up yet.
			if _, known := t.res.homeOf(p.ID); !known && !t.Adopting() {
				t.res.addCold(p)
			}
			return true, nil
		}
		l, mine := t.loads.join(p.ID)
		if mine {
			// The row first, as in bringOne. It may have gone before the page was open.
			rows, err := t.Index.Pages([]pages.ID{p.ID})
			switch {
			case err != nil:
				l.err = err
			case rows[0] == nil:
				l.err = syscall.ENOENT
			default:
				l.inRAM, l.err = t.load(ctx, p, t.LoadWait)
			}
			t.endLoad(p, l)
		}
		<-l.done
		if l.none {
			continue // whoever has it open still can read it
		}
		if l.err != nil || l.inRAM || mine {
			return l.inRAM, l.err
		}
		return false, nil
	}
}

func (ls *loads) join(id pages.ID) (l *load, mine bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l = ls.m[id]; l != nil {
		return l, false
	}
	l = &load{done: make(chan struct{})}
	ls.m[id] = l
	return l, true
}

// leave ends a load. gone says that nothing needs the page any more.
func (ls *loads) leave(id pages.ID, l *load) (gone bool) {
	ls.mu.Lock()
	delete(ls.m, id)
	gone = l.gone
	ls.mu.Unlock()
	close(l.done)
	return gone
}

// abandon tells a load that nothing needs its page any more. False if there is none.
func (ls *loads) abandon(id pages.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[id]
	if l != nil {
		l.gone = true
	}
	return l != nil
}

// endLoad ends a load, and takes away what it has brought if nothing needs that.
func (t *Tiers) endLoad(p *index.Page, l *load) {
	if t.loads.leave(p.ID, l) {
		t.forgetRAM(p.ID, Charge(p.Bytes), false)
	}
}

// has reports whether the page is being read from disk.
func (ls *loads) has(id pages.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.m[id] != nil
}

// active is how many pages are being read from disk.
func (ls *loads) active() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.m)
}

// load reads a page into RAM. It waits at most wait for room.
func (t *Tiers) load(ctx context.Context, p *index.Page, wait time.Duration) (inRAM bool, err error) {
	if t.Disk == nil {
		return false, t.lost(p, errors.New("there is no disk tier"))
	}
	charge := Charge(p.Bytes)
	if !t.roomFor(ctx, p, charge, wait) {
		// It can be read all the same; that it is there is known at once.
		switch there, err := t.Disk.Has(p.Key); {
		case err != nil:
			return false, err
		case !there:
			return false, t.lost(p, pages.ErrAbsent)
		}
		t.Counts.UncachedOpens.Add(1)
		return false, nil
	}
	took, err := t.read(ctx, p)
	if err != nil {
		t.Budget.Unreserve(charge)
		if errors.Is(err, pages.ErrLost) || errors.Is(err, pages.ErrAbsent) {
			return false, t.lost(p, err)
		}
		if errors.Is(err, syscall.ENOSPC) {
			return false, nil // the tmpfs itself is fuller than it seemed
		}
		return false, err
	}
	t.Budget.Fill(charge)
	home, own := t.hints.take(p.ID)
	t.res.add(p, home, own)
	t.Counts.LoadedBytes.Add(p.Bytes)
	t.Counts.LoadedPages.Add(1)
	t.took(WorkLoad, took)
	return true, nil
}

// readsAtATime bounds how many pages are read from disk at a time, for opens and
// lookups together: more would not be faster, and each takes buffers of some MiB.
func readsAtATime(loaders int) int { return 2 * max(loaders, 1) }

// read copies the page to RAM when it is its turn.
func (t *Tiers) read(ctx context.Context, p *index.Page) (took time.Duration, err error) {
	t.reading.Add(1)
	defer t.reading.Add(-1)
	select {
	case t.reads <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-t.reads }()
	done := t.health.begin(WorkLoad)
	err = t.copyIn(ctx, p)
	return done(err), err
}

// roomFor reserves RAM for a page that comes back. For one that a lookup wants,
// others are evicted, and waited for; one that is only read takes what is free, or
// the place of another such page.
func (t *Tiers) roomFor(ctx context.Context, p *index.Page, charge int64, wait time.Duration) bool {
	if !t.hints.wanted(p.ID) {
		if t.Budget.TryReserve(charge) {
			return true
		}
		if t.evicting.TryLock() {
			t.dropCold(ctx, t.Budget.Limit()-charge)
			t.evicting.Unlock()
		}
		return t.Budget.TryReserve(charge)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return t.Budget.Reserve(ctx, charge, t.AskRoom) == nil
}

func (t *Tiers) copyIn(ctx context.Context, p *index.Page) error {
	l, err := t.RAM.BeginLoad(p.ID, p.Bytes)
	if err != nil {
		return err
	}
	n, err := t.Disk.CopyTo(ctx, p.Key, l)
	if err == nil && n != p.Bytes {
		err = fmt.Errorf("%w: the object has %d bytes, the page %d", pages.ErrLost, n, p.Bytes)
	}
	if err != nil {
		l.Abort()
		return err
	}
	return l.Commit()
}

// lost retires every generation that needs a page which has no copy, in one
// transaction, and reports the loss.
func (t *Tiers) lost(p *index.Page, why error) error {
	if t.hasFile(p.ID) {
		return fmt.Errorf("%w", syscall.EAGAIN) // it came to RAM meanwhile
	}
	gs, err := t.Index.Linking(p.ID)
	if err != nil {
		return err
	}
	if rows, err := t.Index.Pages([]pages.ID{p.ID}); err == nil && rows[0] == nil {
		return syscall.ENOENT // its generations went in this instant, and it with them
	}
	if len(gs) == 0 {
		return ErrPageLost // only stagings have it
	}
	t.Counts.LostPages.Add(1)
	for _, g := range gs {
		t.Index.Note(g, t.Now().UnixNano(), fmt.Sprintf("page %v has no copy left: %v", p.Key, why))
	}
	t.Log.Error("a page is lost", "key", p.Key, "page", uint64(p.ID), "generations", len(gs), "reason", why)
	if err := t.Retire(gs, ReasonLost); err != nil {
		return err
	}
	return ErrPageLost
}

// ReasonLost is why a generation is retired whose page has no copy left.
const ReasonLost index.Reason = "a page of it was lost"

// Prefetch has pages of a generation brought to RAM, in the order in which ranks
// ask for them (each in its own, all at the same time), as many at a time as there
// are loaders. ps are the pages of the slots. It does not wait.
func (t *Tiers) Prefetch(g *index.Generation, l *index.Layout, slots []int, ps []*index.Page) {
	var want []*index.Page
	first := false
	for _, n := range inTurn(l, slots) {
		if p := ps[n]; !t.InRAM(p.ID) {
			want = append(want, p)
			first = t.hints.want(p.ID, g.ID, ownPage(g, l, slots[n])) || first
		}
	}
	if len(want) == 0 {
		return
	}
	if first {
		t.Index.Note(g, t.Now().UnixNano(), fmt.Sprintf("a lookup returned it; %d of its %d pages come back from disk", len(want), l.Total()))
	}
	t.wanted.Add(int64(len(want)))
	select {
	case t.queue <- want:
	default: // so much is wanted that an open will come first anyway
		t.brought(len(want))
	}
}

// inTurn orders the slots by their place in their rank, then by rank: it gives
// their indices.
func inTurn(l *index.Layout, slots []int) []int {
	of := make([]int, l.Total()) // one more than the index of each slot
	for n, slot := range slots {
		of[slot] = n + 1
	}
	order := make([]int, 0, len(slots))
	for place := range l.PerRank() {
		for slot := place; slot < len(of); slot += l.PerRank() {
			if n := of[slot]; n > 0 {
				order = append(order, n-1)
			}
		}
	}
	return order
}

// brought says that so many pages are no longer wanted.
func (t *Tiers) brought(n int) {
	if t.wanted.Add(int64(-n)) == 0 {
		t.wake() // eviction may have waited for it
	}
}

// loadLoop brings what lookups want.
func (t *Tiers) loadLoop(ctx context.Context) {
	for {
		var ps []*index.Page
		select {
		case <-ctx.Done():
			return
		case ps = <-t.queue:
		}
		// One page at a time and the rest back, so that all loaders share it.
		if rest := ps[1:]; len(rest) > 0 {
			select {
			case t.queue <- rest:
			default:
				t.brought(len(rest))
			}
		}
		t.bringOne(ctx, ps[0])
		t.brought(1)
	}
}

func (t *Tiers) bringOne(ctx context.Context, p *index.Page) {
	if t.InRAM(p.ID) || ctx.Err() != nil {
		return
	}
	l, mine := t.loads.join(p.ID)
	if !mine {
		return
	}
	defer t.endLoad(p, l)
	switch rows, err := t.Index.Pages([]pages.ID{p.ID}); {
	case err != nil:
		l.err = err
	case rows[0] == nil: // nobody would take it away again
		l.none = true
	case t.InRAM(p.ID), t.hasFile(p.ID):
		l.inRAM = true
	default:
		l.inRAM, l.err = t.load(ctx, p, t.LoadWait)
	}
}
