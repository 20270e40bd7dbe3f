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
	mu sync.Mutex
	m  map[pages.ID]hint
}

type hint struct {
	home   index.ObjectID
	own    bool
	wanted bool
}

// maxHints bounds the memory of hints, about 64 bytes each.
const maxHints = 1 << 20

// evicted keeps a page's home.
func (h *hints) evicted(id pages.ID, home index.ObjectID, own bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if home == 0 || len(h.m) >= maxHints {
		return
	}
	h.m[id] = hint{home: home, own: own}
}

// want says that a lookup of g asks for the page.
func (h *hints) want(id pages.ID, g index.ObjectID, own bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, known := h.m[id]
	if !known {
		x = hint{home: g, own: own}
	}
	x.wanted = true
	h.m[id] = x
}

// take gives the home of a page that is in RAM again: 0 unless a lookup asked.
func (h *hints) take(id pages.ID) (home index.ObjectID, own bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.m[id]
	if !x.wanted {
		return 0, false
	}
	delete(h.m, id)
	return x.home, x.own
}

// drop forgets a page that is gone.
func (h *hints) drop(id pages.ID) {
	h.mu.Lock()
	delete(h.m, id)
	h.mu.Unlock()
}
