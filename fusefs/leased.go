package fusefs

import (
	"maps"
	"slices"

	"ckptfs/index"
	"ckptfs/pages"
)

// leased is who holds what, at one moment.
type leased struct {
	whole map[index.ObjectID][]heldLease // generations and stagings
	pages map[pages.ID][]heldLease
}

func (fs *FS) allLeased() leased {
	l := leased{map[index.ObjectID][]heldLease{}, map[pages.ID][]heldLease{}}
	fs.eachLease(func(h heldLease) {
		if h.kind == LeasePage {
			l.pages[h.node.page()] = append(l.pages[h.node.page()], h)
		}
		if h.gen != 0 {
			l.whole[h.gen] = append(l.whole[h.gen], h)
		}
	})
	return l
}

// of lists the leases on a generation or a staging, and on its pages.
func (l leased) of(id index.ObjectID, ids []pages.ID) []heldLease {
	all := map[uint64]heldLease{}
	for _, h := range l.whole[id] {
		all[h.number()] = h
	}
	if len(l.pages) > 0 {
		for _, page := range ids {
			for _, h := range l.pages[page] {
				all[h.number()] = h
			}
		}
	}
	return slices.Collect(maps.Values(all))
}
