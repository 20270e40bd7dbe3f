package fusefs

import (
	"cmp"
	"slices"

	"ckptfs/index"
	"ckptfs/pages"
)

// boundGenerations retires the coldest generations beyond --max-generations:
// superseded ones first. A leased one is left alone.
func (fs *FS) boundGenerations() {
	excess := fs.idx.Count() - fs.cfg.MaxGenerations
	if excess <= 0 {
		return
	}
	fs.bounding.Lock()
	defer fs.bounding.Unlock()
	if excess = fs.idx.Count() - fs.cfg.MaxGenerations; excess <= 0 {
		return
	}
	// A few more than needed, so that not every publication looks for them.
	excess += fs.cfg.MaxGenerations / 1024
	victims := fs.coldest(excess)
	if len(victims) == 0 {
		return
	}
	if err := fs.retireServerSide(victims, reasonLimit); err != nil {
		fs.log.Warn("generations beyond --max-generations could not be retired", "generations", len(victims), "error", err)
	}
}

// coldest gives at most n generations, neither leased nor pinned, in the order
// of the policy; those that it does not know yet come last, the least recently
// used first.
func (fs *FS) coldest(n int) []*index.Generation {
	place := map[index.ObjectID]int{}
	for i, id := range fs.tiers.Coldest() {
		place[id] = i + 1
	}
	var all []*index.Generation
	_ = fs.eachGeneration(func(g *index.Generation) error {
		if !fs.leases.held(g.ID) && !g.Pinned() {
			all = append(all, g)
			if place[g.ID] == 0 {
				place[g.ID] = len(place) + 1<<32
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b *index.Generation) int {
		x, y := place[a.ID], place[b.ID]
		if x > 1<<32 && y > 1<<32 {
			return cmp.Or(cmp.Compare(a.Used(), b.Used()), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Compare(x, y)
	})
	return all[:min(n, len(all))]
}

// openPages reports whether a page of the generation is open or held by a
// staging.
func (fs *FS) openPages(g *index.Generation) bool {
	c, err := fs.idx.Contents(g)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(c.Pages, func(id pages.ID) bool { return fs.live.Leased(id) })
}
