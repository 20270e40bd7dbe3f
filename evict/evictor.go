package evict

import (
	"context"
	"iter"
	"time"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// Why generations are retired by the tiers themselves.
const (
	ReasonPressure   index.Reason = "RAM was needed and its pages could not be written to disk"
	ReasonDiskFull   index.Reason = "the disk tier was full"
	ReasonSuperseded index.Reason = "it was superseded and RAM was needed"
	ReasonUnlikely   index.Reason = "generations of its kind are not continued and RAM was needed"
)

// evictLoop keeps the RAM tier below its high watermark.
func (t *Tiers) evictLoop(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		case <-retry.C:
		}
		if t.used() <= t.mark(t.High) {
			continue
		}
		t.evicting.Lock()
		t.pass(ctx, func() bool { return t.used() <= t.mark(t.Low) })
		t.evicting.Unlock()
		if t.used() > t.mark(t.High) {
			retry.Reset(retryDelay) // leases or failed writes stand in the way
		}
	}
}

// retryDelay is after how long the watermark is looked at again when a pass
// could not reach it.
const retryDelay = time.Second

func (t *Tiers) mark(part float64) int64 { return int64(part * float64(t.Budget.Limit())) }

func (t *Tiers) used() int64 {
	held, reserved := t.Budget.Usage()
	return held + reserved
}

// AtRest reports whether eviction has nothing to do.
func (t *Tiers) AtRest() bool {
	if t.used() > t.mark(t.High) || len(t.kick) > 0 || len(t.queue) > 0 || t.loads.active() > 0 {
		return false
	}
	if !t.evicting.TryLock() {
		return false
	}
	t.evicting.Unlock()
	return true
}

// MakeRoom frees at least missing bytes of RAM if it can: by the policy down to
// the low watermark, and if that is not enough because writes fail, by retiring
// what could not be written. It returns when that is done or ctx ends.
func (t *Tiers) MakeRoom(ctx context.Context, missing int64) {
	t.evicting.Lock()
	defer t.evicting.Unlock()
	target := t.used() - missing
	enough := func() bool { return t.used() <= target || ctx.Err() != nil }
	if enough() {
		return
	}
	low := min(target, t.mark(t.Low))
	t.pass(ctx, func() bool { return t.used() <= low || ctx.Err() != nil })
	if !enough() {
		t.dropUnwritable(ctx, enough)
	}
}

// pass evicts until done says so or nothing is left that may go. evicting is
// held.
func (t *Tiers) pass(ctx context.Context, done func() bool) {
	if done() {
		return
	}
	spared := t.leasedPages()
	leased := func(id pages.ID) bool { return spared[id] || t.Live.Leased(id) }
	// What nobody looked up comes first.
	t.evictPart(ctx, 0, false, true, leased, done)
	summary := t.res.summary()
	t.policy.Lock()
	next, stop := iter.Pull(t.policy.Victims(t.now(), summary))
	t.policy.Unlock()
	defer stop()
	for !done() && ctx.Err() == nil {
		t.policy.Lock()
		d, ok := next()
		t.policy.Unlock()
		if !ok {
			return
		}
		t.apply(ctx, d, leased, done)
	}
}

// leasedPages are the pages of the generations that are leased as a whole.
func (t *Tiers) leasedPages() map[pages.ID]bool {
	spared := map[pages.ID]bool{}
	for _, id := range t.Leases() {
		g := t.Index.GenerationByID(id)
		if g == nil {
			continue
		}
		if c, err := t.Index.Contents(g); err == nil {
			for _, p := range c.Pages {
				spared[p] = true
			}
		}
	}
	return spared
}

// apply carries out one decision of the policy.
func (t *Tiers) apply(ctx context.Context, d retention.Decision, leased func(pages.ID) bool, done func() bool) {
	home := index.ObjectID(d.Gen)
	switch d.Action {
	case retention.Drop:
		t.drop(home, d.Reason)
	case retention.Evict:
		t.evictPart(ctx, home, d.Part == retention.Own, false, leased, done)
	case retention.WriteBack:
		if t.WritePolicy == WriteNever {
			t.drop(home, d.Reason)
			return
		}
		t.evictPart(ctx, home, d.Part == retention.Own, true, leased, done)
	}
}

// drop retires a generation and with it frees its pages that nothing else needs,
// unwritten. One that is leased is left alone.
func (t *Tiers) drop(id index.ObjectID, why retention.Reason) {
	g := t.Index.GenerationByID(id)
	if g == nil || g.Pinned() || !t.Spare(id) {
		return
	}
	defer t.Spared(id)
	reason := ReasonSuperseded
	switch why {
	case retention.ReasonUnlikely:
		reason = ReasonUnlikely
	case retention.ReasonCold:
		reason = ReasonPressure
	}
	before, _ := t.Budget.Usage()
	if err := t.Retire([]*index.Generation{g}, reason); err != nil {
		t.Log.Warn("a generation could not be retired to make room", "generation", g.Name, "error", err)
		return
	}
	after, _ := t.Budget.Usage()
	t.Counts.DroppedUnsaved.Add(max(before-after, 0))
}

// evictPart removes the RAM copies of a home's own or shared pages, writing
// those back first that have no disk copy, if write says so. Own pages are
// completed even when enough has been freed: half of them is worth little.
func (t *Tiers) evictPart(ctx context.Context, home index.ObjectID, own, write bool, leased func(pages.ID) bool, done func() bool) {
	es := t.res.of(home, own)
	var dirty []*resident
	for _, e := range es {
		if e.page.Disk() == 0 && !leased(e.page.ID) {
			dirty = append(dirty, e)
		}
	}
	if write && len(dirty) > 0 && t.WritePolicy != WriteNever {
		if !own {
			dirty = t.needed(dirty, done)
		}
		t.writeBack(ctx, dirty, false)
	}
	for _, e := range es {
		if !own && done() {
			return
		}
		if e.page.Disk() != 0 {
			t.evictCopy(e.page, leased)
		}
	}
}

// needed shortens a list of shared pages to what is to be freed.
func (t *Tiers) needed(es []*resident, done func() bool) []*resident {
	over := t.used() - t.mark(t.Low)
	for i, e := range es {
		if over <= 0 && i > 0 {
			return es[:i]
		}
		over -= Charge(e.page.Bytes)
	}
	return es
}

// evictCopy removes the RAM copy of a page that is on disk.
func (t *Tiers) evictCopy(p *index.Page, leased func(pages.ID) bool) {
	e, ok := t.res.claim(p.ID, leased)
	if !ok {
		return
	}
	if err := t.RAM.Remove(p.ID); err != nil {
		t.Log.Warn("a page could not be removed from RAM", "page", uint64(p.ID), "error", err)
		t.res.unclaim(e)
		return
	}
	t.Budget.Free(Charge(p.Bytes))
	t.hints.evicted(p.ID, e.home, e.own)
	t.res.removed(e)
	t.Counts.EvictedPages.Add(1)
	t.Counts.EvictedBytes.Add(p.Bytes)
}

// dropUnwritable retires generations, the coldest first, whose pages could not
// be written and whose RAM is really needed.
func (t *Tiers) dropUnwritable(ctx context.Context, done func() bool) {
	t.policy.Lock()
	var order []retention.ID
	for id := range t.policy.Coldest(t.now()) {
		order = append(order, id)
	}
	t.policy.Unlock()
	for _, id := range order {
		if done() || ctx.Err() != nil {
			return
		}
		if g := t.Index.GenerationByID(index.ObjectID(id)); g != nil && t.holdsRAM(g) {
			t.drop(g.ID, retention.ReasonCold)
			t.Counts.RetiredPressure.Add(1)
		}
	}
}

// holdsRAM reports whether the generation has pages in RAM, none of which is
// open.
func (t *Tiers) holdsRAM(g *index.Generation) bool {
	c, err := t.Index.Contents(g)
	if err != nil {
		return false
	}
	in := false
	for _, id := range c.Pages {
		if t.Live.Leased(id) {
			return false
		}
		in = in || t.InRAM(id)
	}
	return in
}
