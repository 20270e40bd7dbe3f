package evict

import (
	"context"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// drop retires a generation and with it frees its pages that nothing else needs,
// unwritten. One that is leased is left alone, and one that was looked up since
// the decision was planned.
func (t *Tiers) drop(id index.ObjectID, why retention.Reason, planned int64) {
	g := t.Index.GenerationByID(id)
	if g == nil || g.Pinned() || !t.Spare(id) {
		return
	}
	defer t.Spared(id)
	if g.Used() > planned && g.Used() != g.Published {
		return
	}
	reason, saved := ReasonSuperseded, &t.Counts.DroppedSuperseded
	switch why {
	case retention.ReasonUnlikely:
		reason, saved = ReasonUnlikely, &t.Counts.DroppedUnlikely
	case retention.ReasonCold:
		reason, saved = ReasonPressure, &t.Counts.DroppedPressure
	}
	dirty := t.dirtyOf(g)
	if err := t.Retire([]*index.Generation{g}, reason); err != nil {
		t.Log.Warn("a generation could not be retired to make room", "generation", g.Name, "error", err)
		return
	}
	for _, p := range dirty {
		if _, known := t.res.homeOf(p.ID); !known {
			saved.Add(p.Bytes)
		}
	}
}

// dirtyOf lists the pages of a generation that are in RAM only.
func (t *Tiers) dirtyOf(g *index.Generation) []*index.Page {
	c, err := t.Index.Contents(g)
	if err != nil {
		return nil
	}
	rows, err := t.Index.Pages(c.Pages)
	if err != nil {
		return nil
	}
	dirty := rows[:0]
	for _, p := range rows {
		if p != nil && p.Disk() == 0 {
			dirty = append(dirty, p)
		}
	}
	return dirty
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
		if e.page.Disk() == 0 {
			wanted[e.page.ID] = e
		}
	}
	if len(wanted) == 0 {
		return
	}
	homes := map[pages.ID]*index.Generation{} // the shortest that has it
	p.eachLinking(wanted, func(id pages.ID, g *index.Generation) {
		if h := homes[id]; h == nil || g.NumTokens < h.NumTokens {
			homes[id] = g
		}
	})
	for id, g := range homes {
		p.res.add(wanted[id].page, g.ID, false)
	}
}

// neededByCurrent chooses the pages that some current generation has. It looks
// at all of them: few pages are such that their home does not tell.
func (t *Tiers) neededByCurrent(es []*resident) []*resident {
	wanted := make(map[pages.ID]*resident, len(es))
	for _, e := range es {
		wanted[e.page.ID] = e
	}
	needed := map[pages.ID]bool{}
	t.eachLinking(wanted, func(id pages.ID, g *index.Generation) {
		needed[id] = needed[id] || !g.State().Superseded()
	})
	kept := es[:0]
	for _, e := range es {
		if needed[e.page.ID] {
			kept = append(kept, e)
		}
	}
	return kept
}

// eachLinking calls f for every page of wanted and every generation that has it.
func (t *Tiers) eachLinking(wanted map[pages.ID]*resident, f func(pages.ID, *index.Generation)) {
	_ = t.Index.EachGeneration(func(g *index.Generation) error {
		c, err := t.Index.Contents(g)
		if err != nil {
			return nil // retired meanwhile
		}
		for _, id := range c.Pages {
			if wanted[id] != nil {
				f(id, g)
			}
		}
		return nil
	})
}
