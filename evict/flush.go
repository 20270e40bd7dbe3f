package evict

import (
	"cmp"
	"context"
	"slices"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// Flushed tells how a flush went.
type Flushed struct {
	Pages, Left           int   // pages written; pages that have no disk copy still
	Bytes, LeftBytes      int64 // the same in bytes
	GenerationsIncomplete int   // generations that need a page which is left
}

// flushBatch is how many pages are written between two looks at the clock.
const flushBatch = 64

// Flush writes what is only in RAM to disk until ctx ends: pages of current
// generations first, then of superseded ones, newest first. It reports progress
// to the log every 2 s. What could not be written is told, not hidden.
func (t *Tiers) Flush(ctx context.Context) Flushed {
	var f Flushed
	if t.Disk == nil || t.WritePolicy == WriteNever {
		f.Left = len(t.res.dirty())
		return f
	}
	unknown := t.awaitAdopted(ctx)
	t.waiting.end() // what is published and waits for Learn is written too
	es, warmest := t.flushOrder()
	on := func(e *resident) index.ObjectID { return warmest[e.id] }
	lastTold := t.Now()
	left := es
	for range 2 { // the second time for what eviction was writing
		for batch := range slices.Chunk(left, flushBatch) {
			if ctx.Err() != nil {
				break
			}
			// This is the last time to try.
			t.writeBack(ctx, batch, storing{room: true, again: true, on: on, count: &t.Counts.WrittenFlush})
			if t.Now().Sub(lastTold) >= 2*time.Second {
				lastTold = t.Now()
				t.Log.Info("writing RAM to disk", "pages_left", len(t.res.dirty()), "pages", len(es))
			}
		}
		t.awaitWritten(ctx, left)
		left = slices.DeleteFunc(slices.Clone(left), func(e *resident) bool { return !e.dirty() })
	}
	t.saveBlobs(ctx)
	for _, e := range es {
		if !e.dirty() {
			f.Pages++
			f.Bytes += e.bytes()
		}
	}
	f.LeftBytes = unknown
	for _, e := range t.res.dirty() {
		f.Left++
		f.LeftBytes += e.bytes()
	}
	return f
}

// awaitWritten waits until none of the pages is being written by somebody else, or
// ctx ends.
func (t *Tiers) awaitWritten(ctx context.Context, es []*resident) {
	for _, e := range es {
		for t.res.isWriting(e) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// flushOrder lists the pages without a disk copy, the most wanted first, and which
// generation wants each most.
func (t *Tiers) flushOrder() (es []*resident, warmest map[pages.ID]index.ObjectID) {
	rank := map[pages.ID]int64{}
	warmest = map[pages.ID]index.ObjectID{}
	_ = t.Index.EachGeneration(func(g *index.Generation) error {
		c, err := t.Index.Contents(g)
		if err != nil {
			return nil
		}
		r := g.Used()
		switch s := g.State(); { // after all that are current, those in grace first
		case s == index.PassedFork && t.now()-t.supersededAt(g) < t.Grace:
			r -= 1 << 61
		case s.Superseded():
			r -= 1 << 62
		}
		for _, id := range c.Pages {
			if old, ok := rank[id]; !ok || r > old {
				rank[id], warmest[id] = r, g.ID
			}
		}
		return nil
	})
	es = t.res.dirty()
	slices.SortFunc(es, func(a, b *resident) int {
		return cmp.Or(cmp.Compare(rank[b.id], rank[a.id]), cmp.Compare(a.id, b.id))
	})
	return es, warmest
}

// Unsaved gives the generations that need a page which is in RAM only. They do
// not outlive the RAM tier.
func (t *Tiers) Unsaved() []*index.Generation {
	left := map[pages.ID]bool{}
	for _, e := range t.res.dirty() {
		left[e.id] = true
	}
	if len(left) == 0 {
		return nil
	}
	var gs []*index.Generation
	_ = t.Index.EachGeneration(func(g *index.Generation) error {
		c, err := t.Index.Contents(g)
		if err != nil {
			return nil
		}
		if slices.ContainsFunc(c.Pages, func(id pages.ID) bool { return left[id] }) {
			gs = append(gs, g)
		}
		return nil
	})
	return gs
}
