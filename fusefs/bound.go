package fusefs

import (
	"slices"

	"ckptfs/index"
	"ckptfs/pages"
)

// boundGenerations retires the least recently used generations beyond
// --max-generations. A leased one is left alone.
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
	victims := fs.leastRecent(excess)
	if len(victims) == 0 {
		return
	}
	if err := fs.retireServerSide(victims, reasonLimit); err != nil {
		fs.log.Warn("generations beyond --max-generations could not be retired", "generations", len(victims), "error", err)
	}
}

// leastRecent gives at most n generations, neither leased nor pinned, the least
// recently used first.
func (fs *FS) leastRecent(n int) []*index.Generation {
	var all []*index.Generation
	_ = fs.eachGeneration(func(g *index.Generation) error {
		if !fs.leases.held(g.ID) && !g.Pinned() {
			all = append(all, g)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b *index.Generation) int {
		if a.Used() != b.Used() {
			return int(min(max(a.Used()-b.Used(), -1), 1))
		}
		return int(int64(a.ID) - int64(b.ID))
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
