package fusefs

import (
	"sync"
	"sync/atomic"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// leases counts the open handles that hold whole generations: directories of a
// generation or of a rank, and .find handles. The lock is a leaf.
type leases struct {
	mu    sync.Mutex
	gen   map[index.ObjectID]int
	going map[index.ObjectID]bool // being retired by the tiers: no lease any more
}

func newLeases() *leases {
	return &leases{gen: map[index.ObjectID]int{}, going: map[index.ObjectID]bool{}}
}

// take leases a generation. False if it is just being retired.
func (l *leases) take(id index.ObjectID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.going[id] {
		return false
	}
	l.gen[id]++
	return true
}

// spare reports whether the generation may be retired; until spared nobody can
// lease it.
func (l *leases) spare(id index.ObjectID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gen[id] > 0 || l.going[id] {
		return false
	}
	l.going[id] = true
	return true
}

func (l *leases) spared(id index.ObjectID) {
	l.mu.Lock()
	delete(l.going, id)
	l.mu.Unlock()
}

func (l *leases) drop(id index.ObjectID) {
	l.mu.Lock()
	if l.gen[id]--; l.gen[id] <= 0 {
		delete(l.gen, id)
	}
	l.mu.Unlock()
}

// held reports whether the generation is leased as a whole.
func (l *leases) held(id index.ObjectID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gen[id] > 0
}

// count is how many handles lease the generation as a whole.
func (l *leases) count(id index.ObjectID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gen[id]
}

// all lists the leased generations.
func (l *leases) all() []index.ObjectID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]index.ObjectID, 0, len(l.gen))
	for id := range l.gen {
		ids = append(ids, id)
	}
	return ids
}

// handleLease is what an open handle holds. Only the staging is looked at by
// others than who opens and releases it.
type handleLease struct {
	gen   index.ObjectID                // a generation, 0 none
	page  pages.ID                      // a page, 0 none
	draft atomic.Pointer[staging.Draft] // a staging, nil none
}

// lease takes for a handle what its node stands for. False if the node is gone.
func (fs *FS) lease(h *handle, pageBytes int64) bool {
	n := h.node
	switch {
	case n.kind() == kindPage:
		if !fs.live.Open(n.page(), pageBytes) {
			return false
		}
		h.lease.page = n.page()
		if d, ok := fs.stage.Maker(n.page()); ok {
			d.Hold()
			h.lease.draft.Store(d)
			if h.writes() {
				d.Writes(h.rec.pid, n.page())
			}
		}
	case n.inGeneration():
		d, draft := fs.stage.ByID(n.generation())
		if draft {
			d.Hold()
			h.lease.draft.Store(d)
		}
		// A staging's id becomes its generation's, and so does its lease.
		if n.isDir() {
			if fs.leases.take(n.generation()) {
				h.lease.gen = n.generation()
			} else if !draft {
				return false
			}
		}
	}
	return true
}

// unlease gives back what the handle holds.
func (fs *FS) unlease(h *handle) {
	if h.lease.page != 0 {
		fs.live.Close(h.lease.page)
	}
	if d := h.lease.draft.Swap(nil); d != nil {
		if h.lease.page != 0 && h.writes() {
			d.Written(h.rec.pid, h.lease.page)
		}
		d.Unhold()
	}
	if h.lease.gen != 0 {
		fs.leases.drop(h.lease.gen)
	}
	h.lease.gen, h.lease.page = 0, 0
}

// leaseFound makes a .find handle hold the generation, in place of what it held.
// False, and nothing is held, if the generation is just being retired.
func (fs *FS) leaseFound(h *handle, id index.ObjectID) bool {
	leased := id == 0 || fs.leases.take(id)
	if !leased {
		id = 0
	}
	old := h.lease.gen
	h.lease.gen = id
	h.setLeased(id)
	if old != 0 {
		fs.leases.drop(old)
	}
	return leased
}
