package evict

import (
	"cmp"
	"time"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// Brought are the pages that a publication has brought to the index: their files
// were in RAM then, which need not be asked again.
type Brought struct {
	Pages []pages.ID // in the order of their slots
	// Removals is what Tiers.Removals was before the publication. If it is another
	// number now, a page may have been opened, entered and evicted since.
	Removals uint64
}

// Published takes up a generation: its pages are in RAM or were there already.
// kin is what its publication had to do with others.
func (t *Tiers) Published(g *index.Generation, c *index.Contents, kin index.Kinship, brought Brought) {
	take := func() { t.Counts.Deduplicated.Add(t.takeUp(g, c, kin, brought)) }
	if !t.waiting.add(take) {
		take()
	}
}

// takeUp returns the bytes of pages that others have too.
func (t *Tiers) takeUp(g *index.Generation, c *index.Contents, kin index.Kinship, brought Brought) (shared int64) {
	t.announce(g, kin, t.now())
	shared = t.giveHomes(g, c, brought)
	t.takeBack(g, brought.Pages)
	t.announced(g)
	return shared
}

// announce tells the policy of a publication, with its time. When the pages have
// their homes, announced ends it.
func (t *Tiers) announce(g *index.Generation, kin index.Kinship, at time.Duration) {
	old := make([]retention.ID, len(kin.Superseded))
	for i, id := range kin.Superseded {
		old[i] = retention.ID(id)
	}
	told := t.policyGeneration(g)
	told.Kept = retention.ID(kin.Kept)
	t.lockPolicy()
	t.policy.Published(at, told, old)
	t.policy.Unlock()
	if len(old) > 0 {
		t.turns.Add(1)
	}
}

func (t *Tiers) announced(g *index.Generation) {
	if g.Retired() { // before the policy knew it
		t.Retired(g.ID)
	}
	t.wake()
}

// policyGeneration is what the index knows of a generation.
func (t *Tiers) policyGeneration(g *index.Generation) retention.Generation {
	kind := retention.Response
	switch g.Kind {
	case index.KindInstruction:
		kind = retention.Instruction
	case index.KindPrompt:
		kind = retention.Prompt
	}
	told := retention.Generation{
		ID: retention.ID(g.ID), Identity: uint64(g.Identity.ID), Request: requestID(g.Identity.ID, g.Request),
		Kind: kind, Tokens: g.NumTokens, Parent: retention.ID(g.Parent),
	}
	s := g.State()
	told.Fork, told.Superseded = s.Fork(), s.Superseded()
	if told.Superseded {
		told.SupersededAt = t.supersededAt(g)
	}
	return told
}

// supersededAt is when a superseded generation became so: now if that is not
// known, for what has superseded it is gone.
func (t *Tiers) supersededAt(g *index.Generation) time.Duration {
	if by := t.Index.GenerationByID(g.SupersededBy()); by != nil {
		return t.at(by.Published)
	}
	return t.now()
}

// at is the policy's time of what has happened at a time of day, nanoseconds
// since 1970; nothing has happened later than now.
func (t *Tiers) at(ns int64) time.Duration {
	return min(time.Duration(ns-t.began.UnixNano()), t.now())
}

// requestID makes a number of a request's name (FNV-1a).
func requestID(identity index.ObjectID, request string) uint64 {
	h := uint64(14695981039346656037) ^ uint64(identity)
	for i := range len(request) {
		h = (h ^ uint64(request[i])) * 1099511628211
	}
	return h
}

// giveHomes enters the generation's pages that are in RAM and have no home yet,
// or one that does not cover the generation. It returns the bytes of pages that
// others have too. See takeBack.
func (t *Tiers) giveHomes(g *index.Generation, c *index.Contents, brought Brought) (shared int64) {
	rows, err := t.Index.Pages(c.Pages)
	if err != nil {
		t.Log.Warn("pages of a generation could not be read", "generation", g.Name, "error", err)
		return 0
	}
	if notOnDisk(rows) < 0 { // no page of it will come to disk, and a pass may have begun before
		t.noteBlobs()
	}
	strange := map[retention.ID]bool{} // homes, of pages that others brought
	var others []*index.Page
	for slot, p := range rows {
		if p == nil {
			continue
		}
		if p.Links() > 1 {
			shared += p.Bytes
		}
		mine := len(brought.Pages) > 0 && brought.Pages[0] == p.ID
		if mine {
			t.ahead.take(p.ID)
			brought.Pages = brought.Pages[1:]
		}
		home, known := t.res.homeOf(p.ID)
		switch {
		case known && home == 0:
			t.res.settle(p.ID, g.ID, ownPage(g, c.Layout, slot), false)
		case !known:
			if own := ownPage(g, c.Layout, slot); !mine || !t.res.addSince(brought.Removals, p, g.ID, own) {
				t.addFile(p, g.ID, own)
			}
		case known && home != g.ID:
			strange[retention.ID(home)] = true
			others = append(others, p)
		}
	}
	if len(others) > 0 {
		t.lockPolicy()
		t.policy.Uncovered(strange, retention.ID(g.ID))
		t.policy.Unlock()
	}
	if len(strange) > 0 {
		t.loosen(others, strange, cmp.Or(g.Parent, g.ID))
	}
	return shared
}

// takeBack takes the entries of pages away that went with their generation while
// they were entered: who removed their files may have looked for the entries
// before they were there.
func (t *Tiers) takeBack(g *index.Generation, brought []pages.ID) {
	if !g.Retired() {
		return
	}
	rows, err := t.Index.Pages(brought)
	if err != nil {
		t.Log.Warn("pages of a generation could not be read", "generation", g.Name, "error", err)
		return
	}
	for i, p := range rows {
		if p == nil {
			t.res.take(brought[i])
		}
	}
}

// loosen moves the pages whose homes are strange to another.
func (t *Tiers) loosen(ps []*index.Page, strange map[retention.ID]bool, to index.ObjectID) {
	for _, p := range ps {
		if home, known := t.res.homeOf(p.ID); known && strange[retention.ID(home)] {
			t.res.settle(p.ID, to, false, true)
		}
	}
}

// Removals is how many pages have ceased to be in RAM since the start.
func (t *Tiers) Removals() uint64 { return t.res.removals.Load() }

// addFile enters a page if its file is in RAM. False if it is not.
func (t *Tiers) addFile(p *index.Page, home index.ObjectID, own bool) bool {
	for {
		removals := t.Removals()
		if !t.hasFile(p.ID) {
			return false
		}
		if t.res.addSince(removals, p, home, own) {
			return true
		}
	}
}

func (t *Tiers) hasFile(id pages.ID) bool {
	_, err := t.RAM.Stat(id)
	return err == nil
}

// ownPage reports whether only this generation can have the page: all but the
// full pages of its history.
func ownPage(g *index.Generation, l *index.Layout, slot int) bool {
	_, group, i := l.At(slot)
	gr := &l.Groups[group]
	return gr.Role != index.RoleAttention || (int64(gr.Positions[i])+1)*int64(gr.PageTokens) > int64(g.NumTokens)
}

// Retired tells that a generation is gone, whatever the reason.
func (t *Tiers) Retired(id index.ObjectID) {
	t.lockPolicy()
	moves := t.policy.Retired(retention.ID(id))
	t.policy.Unlock()
	for _, m := range moves {
		t.res.rehome(index.ObjectID(m.From), index.ObjectID(m.To))
		t.hints.rehome(index.ObjectID(m.From), index.ObjectID(m.To))
	}
}

// homeOf gives the home of a page in RAM.
func (r *residency) homeOf(id pages.ID) (home index.ObjectID, known bool) {
	s := &r.shards[uint64(id)%uint64(len(r.shards))]
	s.Lock()
	defer s.Unlock()
	e := s.pages[id]
	if e == nil {
		return 0, false
	}
	return e.home, true
}

// Coldest lists the generations that the policy knows, first to be retired as a
// whole first.
func (t *Tiers) Coldest() []index.ObjectID {
	t.lockPolicy()
	defer t.policy.Unlock()
	var order []index.ObjectID
	for id := range t.policy.Coldest(t.now()) {
		order = append(order, index.ObjectID(id))
	}
	return order
}
