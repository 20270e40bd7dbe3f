package fusefs

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// LeaseKind says what an open handle keeps.
type LeaseKind string

// The kinds of leases.
const (
	LeasePage      LeaseKind = "page"      // an open page: its bytes
	LeaseDirectory LeaseKind = "directory" // an open directory of a generation: the generation
	LeaseFind      LeaseKind = "find"      // an open .find: the generation that it returned last
	LeaseStaging   LeaseKind = "staging"   // something open in a staging: the staging
)

// Lease is one open handle in leases.json.
type Lease struct {
	Path       string    `json:"path"` // of what it keeps, relative to the mount
	Kind       LeaseKind `json:"kind"`
	PID        int       `json:"pid"`     // who opened it; 0 if that is not seen from here
	Command    string    `json:"command"` // "" if that process has ended
	AgeSeconds int64     `json:"age_seconds"`
	Bytes      int64     `json:"bytes"` // of the pages that it keeps
	Writes     bool      `json:"writes,omitempty"`
}

// LeaseCounts counts leases by kind.
type LeaseCounts struct {
	Pages       int `json:"pages"`
	Directories int `json:"directories"`
	Finds       int `json:"finds"`
	Stagings    int `json:"stagings"`
}

func (c *LeaseCounts) add(k LeaseKind) {
	switch k {
	case LeasePage:
		c.Pages++
	case LeaseDirectory:
		c.Directories++
	case LeaseFind:
		c.Finds++
	case LeaseStaging:
		c.Stagings++
	}
}

// LeaseList is what leases.json says.
type LeaseList struct {
	Counts  LeaseCounts `json:"counts"`
	Leases  []Lease     `json:"leases"`   // the oldest, the first taken first
	LeftOut int         `json:"left_out"` // leases that are not listed
}

// maxLeases bounds how many leases are listed.
const maxLeases = 1000

func (fs *FS) leasesJSON() ([]byte, error) {
	b, err := json.MarshalIndent(fs.Leases(maxLeases), "", "  ")
	return append(b, '\n'), err
}

// heldLease is a handle that is a lease.
type heldLease struct {
	*handle
	kind LeaseKind
	gen  index.ObjectID // the generation or staging that it keeps; 0: a published page
}

// leaseOf tells what kind of lease a handle is, from what never changes of it
// and from the table. False if it is none.
func (fs *FS) leaseOf(h *handle) (heldLease, bool) {
	l := heldLease{handle: h, gen: h.node.generation()}
	switch n := h.node; {
	case n.kind() == kindPage:
		l.kind, l.gen = LeasePage, 0
		if d, ok := fs.stage.Maker(n.page()); ok {
			l.gen = d.ID
		}
		return l, true
	case n.kind() == kindFind:
		l.kind, l.gen = LeaseFind, leasedID(h)
		return l, fs.leases.held(l.gen)
	case !n.inGeneration():
		return l, false
	}
	if d, ok := fs.stage.ByID(l.gen); ok && !d.Ghost() {
		l.kind = LeaseStaging
		return l, true
	}
	l.kind = LeaseDirectory
	return l, h.node.isDir() && fs.leases.held(l.gen)
}

// eachLease calls f for every lease.
func (fs *FS) eachLease(f func(heldLease)) {
	fs.handles.each(func(h *handle) {
		if l, ok := fs.leaseOf(h); ok {
			f(l)
		}
	})
}

// Leases lists at most most leases, the one that was taken first first.
func (fs *FS) Leases(most int) LeaseList {
	var held []heldLease
	fs.eachLease(func(l heldLease) { held = append(held, l) })
	return fs.describeLeases(held, most)
}

// describeLeases is Leases for some of them.
func (fs *FS) describeLeases(held []heldLease, most int) LeaseList {
	list := LeaseList{Leases: []Lease{}}
	for _, l := range held {
		list.Counts.add(l.kind)
	}
	slices.SortFunc(held, func(a, b heldLease) int {
		return cmp.Or(cmp.Compare(a.rec.opened, b.rec.opened), cmp.Compare(a.slot, b.slot))
	})
	shown := held[:min(len(held), most)]
	list.LeftOut = len(held) - len(shown)
	holders := newHolders(fs.now())
	for _, l := range shown {
		list.Leases = append(list.Leases, fs.describeLease(l, holders))
	}
	return list
}

func (fs *FS) describeLease(l heldLease, holders *holders) Lease {
	opened := time.Unix(0, l.rec.opened)
	out := Lease{Kind: l.kind, Writes: l.writes(), AgeSeconds: int64(max(fs.now().Sub(opened), 0) / time.Second)}
	out.PID, out.Command = holders.of(l.rec.pid, opened)
	switch l.kind {
	case LeasePage:
		out.Path, out.Bytes = fs.pagePath(l.node.page()), fs.pageBytes(l.handle)
		return out
	case LeaseFind:
		out.Path = fs.placePath(genNode(kindGeneration, l.gen, staging.Place{}))
	default:
		out.Path = fs.placePath(l.node)
	}
	if g := fs.idx.GenerationByID(l.gen); g != nil {
		out.Bytes = g.PageBytes
	} else if d, ok := fs.stage.ByID(l.gen); ok {
		out.Bytes = d.PageBytes()
	}
	return out
}

// pageBytes is the size of an open page.
func (fs *FS) pageBytes(h *handle) int64 {
	if p, err := fs.idx.Page(h.node.page()); err == nil {
		return p.Bytes
	}
	if ref, staged := fs.stage.StagedPage(h.node.page()); staged {
		return ref.PageBytes()
	}
	if st, err := fs.ram.Stat(h.node.page()); err == nil {
		return st.Bytes
	}
	return 0
}
