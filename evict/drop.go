package evict

import (
	"cmp"
	"context"
	"slices"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// drop retires a generation and with it frees its pages that nothing else needs,
// unwritten. One that is pinned or in use is left alone, and so is one that was
// looked up since the decision was planned (a place in the order of recency), or
// that is current by now.
func (t *Tiers) drop(id index.ObjectID, why retention.Reason, planned int64) {
	g := t.Index.GenerationByID(id)
	if g == nil || g.Pinned() || g.Used() > planned {
		return
	}
	reason, saved := ReasonSuperseded, &t.Counts.DroppedSuperseded
	switch why {
	case retention.ReasonUnlikely:
		reason, saved = ReasonUnlikely, &t.Counts.DroppedUnlikely
	case retention.ReasonCold:
		reason, saved = ReasonPressure, &t.Counts.DroppedPressure
	default:
		if !g.State().Superseded() { // the policy has not heard of it
			t.Hit(id)
			return
		}
	}
	rows := t.rowsOf(g)
	// No lookup finds it from Spare on, so that comes last; what came before it counts.
	if t.inUse(rows) || !t.Spare(id) {
		return
	}
	defer t.Spared(id)
	if g.Used() > planned {
		return
	}
	dirty := slices.DeleteFunc(rows, func(p *index.Page) bool { return p.Disk() != 0 })
	if err := t.Retire([]*index.Generation{g}, reason); err != nil {
		t.Log.Warn("a generation could not be retired to make room", "generation", g.Name, "error", err)
		return
	}
	if !g.Retired() {
		return // pinned in this instant
	}
	for _, p := range dirty {
		if _, known := t.res.homeOf(p.ID); !known {
			saved.Add(p.Bytes)
		}
	}
}

// rowsOf lists the pages of a generation; none if that is gone.
func (t *Tiers) rowsOf(g *index.Generation) []*index.Page {
	ids, err := t.Index.PageIDs(g)
	if err != nil {
		return nil
	}
	rows, err := t.Index.Pages(ids)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(rows, func(p *index.Page) bool { return p == nil })
}

// Idle reports whether nothing keeps a generation from being retired but its
// lease: no page that only it has is open, or held by a staging.
func (t *Tiers) Idle(g *index.Generation) bool { return !t.inUse(t.rowsOf(g)) }

// inUse reports whether a page of a generation that no other one has is open, or
// held by a staging: retiring it frees nothing now, and takes the other names
// from under a reader.
func (t *Tiers) inUse(rows []*index.Page) bool {
	return slices.ContainsFunc(rows, func(p *index.Page) bool { return p.Links() <= 1 && t.Live.Leased(p.ID) })
}

// homeless evicts what nobody looked up: pages that came back for a backup, and
// those whose home is gone. Those of them that are in RAM only get a home, so
// that the policy decides about them.
func (p *pass) homeless(ctx context.Context) {
	if p.done(ctx) {
		return
	}
	es := p.res.of(0, false)
	p.evict(ctx, es, false)
	wanted := map[pages.ID]*resident{}
	for _, e := range es {
		if e.dirty() {
			wanted[e.id] = e
		}
	}
	if len(wanted) == 0 {
		return
	}
	homes := map[pages.ID]*index.Generation{} // the shortest that has it
	p.eachLinking(wanted, func(id pages.ID, g *index.Generation) bool {
		if h := homes[id]; h == nil || g.NumTokens < h.NumTokens {
			homes[id] = g
		}
		return true
	})
	for id, g := range homes {
		p.res.move(wanted[id], g.ID, false, false)
	}
}

// neededByCurrent chooses the pages that some current generation has, from loose
// ones: their home does not tell. Generations are looked at once in a pass.
func (p *pass) neededByCurrent(es []*resident) []*resident {
	if p.needed == nil {
		p.needed = p.neededLoose()
	}
	return slices.DeleteFunc(es, func(e *resident) bool { return !p.needed[e.id] })
}

// neededLoose gives, of the loose pages that are in RAM only, those that some
// current generation has.
func (t *Tiers) neededLoose() map[pages.ID]bool {
	wanted, needed := t.res.looseDirty(), map[pages.ID]bool{}
	t.eachLinking(wanted, func(id pages.ID, g *index.Generation) bool {
		if !g.State().Superseded() || g.Pinned() {
			needed[id] = true
		}
		return len(needed) < len(wanted)
	})
	return needed
}

// eachLinking calls f for every page of wanted and every generation that has it,
// the last published first, as long as f says so.
func (t *Tiers) eachLinking(wanted map[pages.ID]*resident, f func(pages.ID, *index.Generation) (more bool)) {
	if len(wanted) == 0 {
		return
	}
	var gs []*index.Generation
	_ = t.Index.EachGeneration(func(g *index.Generation) error { gs = append(gs, g); return nil })
	slices.SortFunc(gs, func(a, b *index.Generation) int { return cmp.Compare(b.Order(), a.Order()) })
	for _, g := range gs {
		ids, err := t.Index.PageIDs(g)
		if err != nil {
			continue // retired meanwhile
		}
		for _, id := range ids {
			if wanted[id] != nil && !f(id, g) {
				return
			}
		}
	}
}
