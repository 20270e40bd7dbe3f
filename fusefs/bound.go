package fusefs

import (
	"cmp"
	"math"
	"slices"

	"ckptfs/index"
)

// boundGenerations retires the coldest generations beyond --max-generations:
// superseded ones first. One that is leased or pinned is left alone.
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
	var victims []*index.Generation
	for _, g := range fs.coldest() {
		if len(victims) == excess {
			break
		}
		if !g.Pinned() && fs.tiers.Idle(g) && fs.leases.spare(g.ID) {
			victims = append(victims, g)
			defer fs.leases.spared(g.ID)
		}
	}
	if len(victims) == 0 {
		return
	}
	if err := fs.retireServerSide(victims, reasonLimit); err != nil {
		fs.log.Warn("generations beyond --max-generations could not be retired", "generations", len(victims), "error", err)
	}
}

// coldest gives all generations in the order of the policy; those that it does
// not know yet come last, the least recently used first.
func (fs *FS) coldest() []*index.Generation {
	place := map[index.ObjectID]int{}
	for i, id := range fs.tiers.Coldest() {
		place[id] = i + 1
	}
	all := make([]*index.Generation, 0, len(place))
	_ = fs.idx.EachGeneration(func(g *index.Generation) error {
		all = append(all, g)
		if place[g.ID] == 0 {
			place[g.ID] = math.MaxInt
		}
		return nil
	})
	slices.SortFunc(all, func(a, b *index.Generation) int {
		return cmp.Or(cmp.Compare(place[a.ID], place[b.ID]), cmp.Compare(a.Used(), b.Used()))
	})
	return all
}
