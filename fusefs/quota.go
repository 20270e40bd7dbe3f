package fusefs

import (
	"cmp"
	"slices"

	"ckptfs/index"
)

const reasonQuota index.Reason = "the quota of its identity or model was needed for a newer one"

// evictOf retires generations of the identities, the coldest first, until
// enough says that it is. What is pinned, leased or held by a staging is left
// alone.
func (fs *FS) evictOf(is []*index.Identity, enough func() bool) {
	fs.bounding.Lock()
	defer fs.bounding.Unlock()
	for _, g := range coldest(is) {
		if !fs.tiers.Idle(g) || !fs.leases.spare(g.ID) {
			continue
		}
		err := fs.retireServerSide([]*index.Generation{g}, reasonQuota)
		fs.leases.spared(g.ID)
		if err != nil {
			fs.log.Warn("a quota could not be made to hold", "generation", g.Name, "error", err)
			return
		}
		if enough() {
			return
		}
	}
}

// coldest lists the generations of the identities that are not pinned:
// superseded ones first, then the least recently used.
func coldest(is []*index.Identity) []*index.Generation {
	var all []*index.Generation
	for _, i := range is {
		all = append(all, i.Generations(0, 1<<30)...)
	}
	all = slices.DeleteFunc(all, (*index.Generation).Pinned)
	rank := func(g *index.Generation) int {
		if g.State().Superseded() {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b *index.Generation) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Used(), b.Used()), cmp.Compare(a.ID, b.ID))
	})
	return all
}
