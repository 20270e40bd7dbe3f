package evict

import (
	"context"
	"fmt"
	"iter"
	"slices"
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

// evictLoop keeps the RAM tier below its high watermark, and makes room for those
// who wait for it.
func (t *Tiers) evictLoop(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	var over time.Time // since when; zero: it is not
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		case <-retry.C:
		}
		wanted, _ := t.Budget.Waiting()
		if wanted == 0 && t.used() <= t.mark(t.High) {
			over = time.Time{}
			continue
		}
		if over.IsZero() {
			over = time.Now()
		}
		if wait := patience - time.Since(over); wanted == 0 && wait > 0 && t.busy() {
			retry.Reset(wait)
			continue
		}
		t.ebb(ctx)
		over = time.Time{}
		if t.used() > t.mark(t.High) {
			retry.Reset(retryDelay) // leases or failed writes stand in the way
		}
	}
}

// retryDelay is after how long the watermark is looked at again when a pass
// could not reach it. patience is how long eviction waits, while nobody waits for
// room, for what is under way: a publication supersedes what would be written
// otherwise.
const (
	retryDelay = time.Second
	patience   = time.Second
)

// busy reports whether a staging is under way or pages are being loaded.
func (t *Tiers) busy() bool { return t.wanted.Load() > 0 || t.Busy != nil && t.Busy() }

func (t *Tiers) mark(part float64) int64 { return int64(part * float64(t.Budget.Limit())) }

func (t *Tiers) used() int64 {
	held, reserved := t.Budget.Usage()
	return held + reserved
}

// AtRest reports whether eviction and loading have nothing to do.
func (t *Tiers) AtRest() bool {
	if wanted, _ := t.Budget.Waiting(); wanted > 0 || t.Adopting() || t.used() > t.mark(t.High) || len(t.kick) > 0 || t.wanted.Load() > 0 || t.loads.active() > 0 {
		return false
	}
	if !t.evicting.TryLock() {
		return false
	}
	t.evicting.Unlock()
	return true
}

// AskRoom has eviction make room for all who wait for a reservation. It does not
// wait: what is freed first serves who waits, long before eviction has reached
// its mark.
func (t *Tiers) AskRoom(int64) { t.wake() }

// MakeRoom frees at least bytes of RAM if it can. It returns when that is done or
// ctx ends.
func (t *Tiers) MakeRoom(ctx context.Context, bytes int64) {
	t.descend(ctx, min(t.used()-bytes, t.mark(t.Low)))
}

// ebb evicts down to the low watermark. What nobody looked up goes first, and if
// that was all that stood above the high watermark, nothing else goes: a backup
// that reads everything drives out only what it has brought.
func (t *Tiers) ebb(ctx context.Context) {
	t.evicting.Lock()
	defer t.evicting.Unlock()
	t.dropCold(ctx, t.mark(t.Low))
	if wanted, _ := t.Budget.Waiting(); wanted == 0 && t.used()-t.res.coldBytes() <= t.mark(t.High) {
		return
	}
	t.descendLocked(ctx, t.mark(t.Low))
}

// dropCold evicts pages that nobody looked up until no more than target bytes are
// used, and nothing else.
func (t *Tiers) dropCold(ctx context.Context, target int64) {
	p := &pass{Tiers: t, target: target, sparing: sparing{t: t}}
	if !p.done(ctx) {
		p.evict(ctx, p.res.of(0, false), false)
	}
}

// descend frees RAM until no more than target bytes are used and all who wait have
// room: by the policy, and if that is not enough for them because writes fail, by
// retiring what could not be written.
func (t *Tiers) descend(ctx context.Context, target int64) {
	t.evicting.Lock()
	defer t.evicting.Unlock()
	t.descendLocked(ctx, target)
}

func (t *Tiers) descendLocked(ctx context.Context, target int64) {
	t.pass(ctx, target)
	if t.writable(ctx) {
		t.pass(ctx, target)
	}
	t.dropUnwritable(ctx)
}

// pass evicts until no more than target bytes are used and nobody waits for room,
// or nothing is left that may go. evicting is held.
func (t *Tiers) pass(ctx context.Context, target int64) {
	p := &pass{Tiers: t, target: target, sparing: sparing{t: t}}
	p.homeless(ctx)
	for !p.done(ctx) {
		p.planned, p.turn = t.Index.Recency(), t.turns.Load()
		if p.plans++; p.follow(ctx) {
			return
		}
	}
}

// pass is one descent to a target.
type pass struct {
	*Tiers
	sparing
	target  int64
	planned int64 // what had been looked up or published last when the plan was made
	turn    int64 // turns when the plan was made
	plans   int
	needed  map[pages.ID]bool // see neededByCurrent
}

func (p *pass) done(ctx context.Context) bool { return p.over() <= 0 || ctx.Err() != nil }

// over is how many bytes are still to be freed.
func (p *pass) over() int64 {
	_, missing := p.Budget.Waiting()
	return max(p.used()-p.target, missing)
}

// maxPlans bounds the plans of a pass: where publications come faster than plans
// are made, the last one is followed to its end, stale or not.
const maxPlans = 4

// follow asks for a plan and carries it out. False if a publication has changed
// what is superseded, so that another plan is wanted.
func (p *pass) follow(ctx context.Context) bool {
	summary := p.res.summary()
	p.lockPolicy()
	next, stop := iter.Pull(p.policy.Victims(p.now(), summary))
	p.policy.Unlock()
	defer stop()
	for !p.done(ctx) {
		p.lockPolicy()
		d, ok := next()
		p.policy.Unlock()
		if !ok {
			return true
		}
		if p.turns.Load() != p.turn && p.plans < maxPlans {
			return false
		}
		p.apply(ctx, d)
	}
	return true
}

// sparing knows the pages that may not be evicted: those that are leased, and
// those of the generations that are leased as a whole.
type sparing struct {
	t     *Tiers
	whole map[index.ObjectID]bool // generations that have been leased since the first look
	pages map[pages.ID]bool       // theirs
	asked int
}

// leaseEvery is how many pages are evicted between two looks for new leases.
const leaseEvery = 16

// look takes up what has been leased meanwhile, now and then.
func (s *sparing) look() {
	if s.asked++; s.asked%leaseEvery == 1 {
		s.lookNow()
	}
}

func (s *sparing) lookNow() {
	if s.asked = 1; s.whole == nil {
		s.whole, s.pages = map[index.ObjectID]bool{}, map[pages.ID]bool{}
	}
	for _, id := range s.t.Leases() {
		if s.whole[id] {
			continue
		}
		s.whole[id] = true
		g := s.t.Index.GenerationByID(id)
		if g == nil {
			continue
		}
		if ids, err := s.t.Index.PageIDs(g); err == nil {
			for _, p := range ids {
				s.pages[p] = true
			}
		}
	}
}

func (s *sparing) leased(id pages.ID) bool { return s.pages[id] || s.t.Live.Leased(id) }

// apply carries out one decision of the policy.
func (p *pass) apply(ctx context.Context, d retention.Decision) {
	p.lookNow()
	home, own := index.ObjectID(d.Gen), d.Part == retention.Own
	g := p.Index.GenerationByID(home)
	switch {
	case d.Action == retention.Drop && g != nil && g.Pinned():
		p.putAside(ctx, home)
	case d.Action == retention.Drop:
		p.drop(home, d.Reason, p.planned)
	case d.Action == retention.Evict:
		n := p.evict(ctx, p.res.of(home, own), own)
		p.note(home, own, n, "evicted from RAM, on disk already", d.Reason)
	case p.WritePolicy == WriteNever:
		p.drop(home, retention.ReasonCold, p.planned)
	default:
		n := p.writeBackPart(ctx, home, own)
		p.note(home, own, n, "written to disk and evicted from RAM", d.Reason)
	}
}

// evict removes the RAM copies of those of a home's pages that are on disk.
// Own pages are completed even when enough has been freed: half of them is
// worth little.
func (p *pass) evict(ctx context.Context, es []*resident, own bool) (evicted int) {
	p.lookNow()
	p.followBad()
	for _, e := range es {
		if !own && p.done(ctx) {
			break
		}
		p.look()
		if !e.dirty() && p.evictCopy(e.id, p.leased) {
			evicted++
		}
	}
	return evicted
}

// note keeps in the history what became of a generation's pages.
func (p *pass) note(home index.ObjectID, own bool, evicted int, what string, why retention.Reason) {
	g := p.Index.GenerationByID(home)
	if g == nil || evicted == 0 {
		return
	}
	pages := "pages of its own"
	if !own {
		pages = "pages that longer ones share"
	}
	p.Index.Note(g, p.Now().UnixNano(), fmt.Sprintf("%d %s %s (%s)", evicted, pages, what, why))
}

// putAside writes what a pinned generation has in RAM only, superseded or not,
// and evicts it: it may not be dropped, and may not hold RAM for ever.
func (p *pass) putAside(ctx context.Context, home index.ObjectID) {
	if p.WritePolicy == WriteNever {
		return
	}
	for _, own := range []bool{true, false} {
		es := p.res.of(home, own)
		dirty := slices.DeleteFunc(slices.Clone(es), func(e *resident) bool { return !e.dirty() || p.leased(e.id) })
		p.writeBack(ctx, dirty, storing{room: true, on: p.res.owner, count: &p.Counts.WrittenEvict})
		n := p.evict(ctx, es, own)
		p.note(home, own, n, "written to disk and evicted from RAM", reasonPinned)
	}
}

// reasonPinned is what led to a write of what would be dropped otherwise.
const reasonPinned retention.Reason = "pinned"

// writeBackPart writes those of a home's pages that are only in RAM, and evicts
// them. What only superseded generations need is not written.
func (p *pass) writeBackPart(ctx context.Context, home index.ObjectID, own bool) (evicted int) {
	if g := p.Index.GenerationByID(home); own && (g == nil || g.State().Superseded()) {
		return 0
	}
	var dirty, loose []*resident
	for _, e := range p.res.of(home, own) {
		_, _, isLoose := p.res.place(e)
		switch {
		case !e.dirty() || p.leased(e.id):
		case isLoose:
			loose = append(loose, e)
		default:
			dirty = append(dirty, e)
		}
	}
	if len(loose) > 0 {
		dirty = append(dirty, p.neededByCurrent(loose)...)
	}
	if !own {
		dirty = p.enough(dirty)
	}
	p.writeBack(ctx, dirty, storing{room: true, on: p.res.owner, count: &p.Counts.WrittenEvict})
	return p.evict(ctx, dirty, own)
}

// enough shortens a list of shared pages to what is to be freed.
func (p *pass) enough(es []*resident) []*resident {
	over := p.over()
	for i, e := range es {
		if over <= 0 && i > 0 {
			return es[:i]
		}
		over -= Charge(e.bytes())
	}
	return es
}

// evictCopy removes the RAM copy of a page that is on disk.
func (t *Tiers) evictCopy(id pages.ID, leased func(pages.ID) bool) bool {
	e, ok := t.res.claim(id, leased)
	if !ok {
		return false
	}
	if err := t.removeCopy(id, Charge(e.bytes())); err != nil {
		t.Log.Warn("a page could not be removed from RAM", "page", uint64(id), "error", err)
		t.res.unclaim(e)
		return false
	}
	home, own, _ := t.res.place(e)
	t.hints.evicted(id, home, own)
	t.res.removed(e)
	t.Counts.EvictedPages.Add(1)
	t.Counts.EvictedBytes.Add(e.bytes())
	age := max(t.now()-e.since.duration(), 0)
	t.Counts.EvictedAge.Add(int64(age))
	if t.Evicted != nil {
		t.Evicted(age)
	}
	return true
}

// writable is asked before anything is retired whose writes have failed: the
// trouble may have passed since. It tries one page; if the disk takes that, all
// may be tried again at once.
func (t *Tiers) writable(ctx context.Context) bool {
	if _, missing := t.Budget.Waiting(); missing == 0 || t.Disk == nil || t.WritePolicy == WriteNever {
		return false
	}
	es := t.res.dirty()
	n := slices.IndexFunc(es, func(e *resident) bool { return e.failed().n >= maxFails })
	if n < 0 {
		return false
	}
	t.writeBack(ctx, es[n:n+1], storing{again: true, count: &t.Counts.WrittenEvict})
	if es[n].dirty() {
		return false
	}
	for _, e := range es {
		if f := e.failures.Load(); f != nil {
			e.failures.CompareAndSwap(f, &failures{f.n, 0})
		}
	}
	return true
}

// dropUnwritable retires generations, the coldest first, whose pages could not
// be written and whose RAM is really needed.
func (t *Tiers) dropUnwritable(ctx context.Context) {
	if _, missing := t.Budget.Waiting(); missing == 0 {
		return
	}
	planned := t.Index.Recency()
	for _, id := range t.Coldest() {
		if _, missing := t.Budget.Waiting(); missing == 0 || ctx.Err() != nil {
			return
		}
		if g := t.Index.GenerationByID(id); g != nil && t.unwritable(g) {
			t.drop(g.ID, retention.ReasonCold, planned)
		}
	}
}

// unwritable reports whether the generation has pages that are in RAM only and
// will not be written: the disk has refused them again and again, or it is
// superseded. Pages that are open, or only wait for their turn, are no reason to
// retire anything.
func (t *Tiers) unwritable(g *index.Generation) bool {
	ids, err := t.Index.PageIDs(g)
	if err != nil {
		return false
	}
	found := false
	for _, id := range ids {
		if t.Live.Leased(id) {
			return false
		}
		found = found || t.res.unwritable(id, g.State().Superseded() || t.WritePolicy == WriteNever)
	}
	return found
}
