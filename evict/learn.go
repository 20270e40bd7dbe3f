package evict

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"ckptfs/index"
)

// waiting are publications that the policy is told of when it has learned what
// was published before. The lock is a leaf.
type waiting struct {
	mu   sync.Mutex
	on   bool
	told []func()
}

// add keeps f for later. False if there is nothing to wait for.
func (w *waiting) add(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on {
		w.told = append(w.told, f)
	}
	return w.on
}

// over reports whether nothing waits any more.
func (w *waiting) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.on
}

// end runs what waited, and what came meanwhile.
func (w *waiting) end() {
	for {
		w.mu.Lock()
		told := w.told
		w.told = nil
		w.on = len(told) > 0
		w.mu.Unlock()
		if len(told) == 0 {
			return
		}
		for _, f := range told {
			f()
		}
	}
}

// ExpectLearn says that Learn will be called: publications wait for it.
func (t *Tiers) ExpectLearn() { t.waiting.on = true }

// Learn gives the policy the generations of a former daemon, and the pages in
// RAM their homes: publications in their order, and between them the last
// lookups. It runs beside the service.
func (t *Tiers) Learn(ctx context.Context) {
	defer t.waiting.end()
	var gs []*index.Generation
	err := t.Index.EachGeneration(func(g *index.Generation) error {
		gs = append(gs, g)
		return ctx.Err()
	})
	if err != nil {
		return
	}
	slices.SortFunc(gs, func(a, b *index.Generation) int { return cmp.Compare(a.Order(), b.Order()) })
	hits := slices.DeleteFunc(slices.Clone(gs), func(g *index.Generation) bool {
		return g.Used() <= g.Published || g.State().Superseded()
	})
	slices.SortFunc(hits, func(a, b *index.Generation) int { return cmp.Compare(a.Used(), b.Used()) })
	for _, g := range gs {
		if ctx.Err() != nil {
			return
		}
		for len(hits) > 0 && hits[0].Used() <= g.Published {
			t.Hit(hits[0].ID)
			hits = hits[1:]
		}
		t.learnOne(g)
	}
	for _, g := range hits {
		t.Hit(g.ID)
	}
}

// learnOne takes up a generation. Most have nothing in RAM: of them the list of
// pages is all that is read.
func (t *Tiers) learnOne(g *index.Generation) {
	ids, err := t.Index.PageIDs(g)
	if err != nil {
		return // retired meanwhile
	}
	t.announce(g, index.Kinship{}, t.at(g.Published))
	defer t.announced(g)
	if !slices.ContainsFunc(ids, t.InRAM) {
		return
	}
	if c, err := t.Index.Contents(g); err == nil {
		t.giveHomes(g, c, Brought{})
	}
}
