package evict

import (
	"sync"

	"ckptfs/index"
	"ckptfs/pages"
)

// hints remember the homes of pages that are on disk only, and which of them a
// lookup wants. A page that comes back without a lookup (a backup reads it) gets
// no home, and goes first again. The lock is a leaf.
type hints struct {
	mu    sync.Mutex
	m     map[pages.ID]hint
	count map[index.ObjectID]int            // hints by home, and homes that moved there
	moved map[index.ObjectID]index.ObjectID // homes that have hints, and moved
}

type hint struct {
	home   index.ObjectID
	own    bool
	wanted bool
}

// maxHints bounds the memory of hints, see hintBytes.
const maxHints = 1 << 20

func (h *hints) init() {
	h.m = map[pages.ID]hint{}
	h.count = map[index.ObjectID]int{}
	h.moved = map[index.ObjectID]index.ObjectID{}
}

func (h *hints) setLocked(id pages.ID, x hint) {
	h.removeLocked(id)
	h.m[id] = x
	h.count[x.home]++
}

func (h *hints) removeLocked(id pages.ID) {
	x, ok := h.m[id]
	if !ok {
		return
	}
	delete(h.m, id)
	for home := x.home; ; {
		if h.count[home]--; h.count[home] > 0 {
			return
		}
		delete(h.count, home)
		to, moved := h.moved[home]
		if !moved {
			return
		}
		delete(h.moved, home)
		home = to // what moved there counts as one of its hints
	}
}

// rehome says that the pages of one home have another one now.
func (h *hints) rehome(from, to index.ObjectID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count[from] == 0 || h.homeLocked(to) == from {
		return
	}
	h.moved[from] = to
	h.count[to]++
}

// homeLocked follows the moves of a home.
func (h *hints) homeLocked(home index.ObjectID) index.ObjectID {
	for {
		to, ok := h.moved[home]
		if !ok {
			return home
		}
		home = to
	}
}

// evicted keeps a page's home.
func (h *hints) evicted(id pages.ID, home index.ObjectID, own bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if home == 0 || len(h.m) >= maxHints {
		return
	}
	h.setLocked(id, hint{home: home, own: own})
}

// want says that a lookup of g asks for the page: the first time since it was
// evicted?
func (h *hints) want(id pages.ID, g index.ObjectID, own bool) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, known := h.m[id]
	first = !x.wanted
	home := h.homeLocked(x.home)
	if !known || home == 0 {
		home, x.own = g, own
	}
	x.own = x.own && home == x.home
	x.home, x.wanted = home, true
	h.setLocked(id, x)
	return first
}

// wanted reports whether a lookup asked for the page since it left RAM.
func (h *hints) wanted(id pages.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.m[id].wanted
}

// take gives the home of a page that is in RAM again: 0 unless a lookup asked.
func (h *hints) take(id pages.ID) (home index.ObjectID, own bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.m[id]
	if !x.wanted {
		return 0, false
	}
	home = h.homeLocked(x.home)
	own = x.own && home == x.home
	h.removeLocked(id)
	return home, own
}

func (h *hints) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.m)
}

// drop forgets a page that is gone.
func (h *hints) drop(id pages.ID) {
	h.mu.Lock()
	h.removeLocked(id)
	h.mu.Unlock()
}
