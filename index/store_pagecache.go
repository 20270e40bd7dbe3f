package index

import (
	"sync"
	"weak"

	"ckptfs/pages"
)

// pageShards spreads the cache's locks: pages that are used together have
// neighbouring ids.
const pageShards = 64

// pageCache has the pages that anybody holds, by weak pointers, so that each
// page is one *Page; and by strong ones the pages used lately, as many as its
// capacity, chosen by a clock.
//
// A page is read from the database without a lock, and put here afterwards.
// To put nothing old here, each shard counts the commits that changed its
// pages, an epoch; what was read before the epoch changed is read again.
type pageCache struct {
	shards [pageShards]pageShard
}

type pageShard struct {
	mu    sync.Mutex
	epoch uint64
	pages map[pages.ID]weak.Pointer[Page]
	sweep int     // when this many are in the map, the dead are taken out
	clock []*Page // the pages kept
	hand  int
	keeps int // how many the clock has at most
}

// newPageCache makes a cache that keeps about capacity pages, 160 bytes each.
func newPageCache(capacity int) *pageCache {
	c := new(pageCache)
	for n := range c.shards {
		s := &c.shards[n]
		s.pages = make(map[pages.ID]weak.Pointer[Page])
		s.keeps = max(1, capacity/pageShards)
		s.sweep = 2 * s.keeps
	}
	return c
}

func (c *pageCache) shard(id pages.ID) *pageShard { return &c.shards[id%pageShards] }

// get returns a page that is here, else nil.
func (c *pageCache) get(id pages.ID) *Page {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pages[id].Value()
	if p != nil {
		s.keep(p)
	}
	return p
}

// epochs returns the epochs of the pages' shards.
func (c *pageCache) epochs(ids []pages.ID) []uint64 {
	epochs := make([]uint64, len(ids))
	for n, id := range ids {
		s := c.shard(id)
		s.mu.Lock()
		epochs[n] = s.epoch
		s.mu.Unlock()
	}
	return epochs
}

// insert returns the page of a row that was read in an epoch: the one that is
// here, else a new one. It returns nil if the row may be old.
func (c *pageCache) insert(r *PageRow, epoch uint64) *Page {
	s := c.shard(r.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pages[r.ID].Value(); p != nil {
		s.keep(p)
		return p
	}
	if s.epoch != epoch {
		return nil
	}
	return s.insert(r)
}

// changed puts a row here that was just committed, and returns its page. The
// writer's lock is held.
func (c *pageCache) changed(r *PageRow) *Page {
	s := c.shard(r.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	p := s.pages[r.ID].Value()
	if p == nil {
		return s.insert(r)
	}
	p.links.Store(r.Links)
	p.disk.Store(r.Disk)
	s.keep(p)
	return p
}

// setDisk sets what the page's object takes if it is here, after a commit. The
// writer's lock is held.
func (c *pageCache) setDisk(id pages.ID, bytes int64) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	if p := s.pages[id].Value(); p != nil {
		p.disk.Store(bytes)
	}
}

// setLinks sets the links of a page if it is here, after a commit. The
// writer's lock is held.
func (c *pageCache) setLinks(id pages.ID, links int32) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	if p := s.pages[id].Value(); p != nil {
		p.links.Store(links)
	}
}

// setAttr sets the attributes of a page if it is here, after a commit. The
// writer's lock is held.
func (c *pageCache) setAttr(id pages.ID, a Attr) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	if p := s.pages[id].Value(); p != nil {
		p.set(a)
	}
}

// dropped takes a page out after its row was deleted, and returns it. The
// writer's lock is held.
func (c *pageCache) dropped(r *PageRow) *Page {
	s := c.shard(r.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	p := s.pages[r.ID].Value()
	delete(s.pages, r.ID)
	if p == nil {
		p = r.page()
	}
	p.links.Store(0)
	return p // the clock's pointer to it goes when the hand comes by
}

// insert adds the page of a row. s.mu is held.
func (s *pageShard) insert(r *PageRow) *Page {
	p := r.page()
	s.pages[r.ID] = weak.Make(p)
	s.keep(p)
	if len(s.pages) >= s.sweep {
		for id, w := range s.pages {
			if w.Value() == nil {
				delete(s.pages, id)
			}
		}
		s.sweep = 2 * max(s.keeps, len(s.pages))
	}
	return p
}

// keep notes a use, and has the clock keep the page. s.mu is held.
func (s *pageShard) keep(p *Page) {
	p.used = true
	if p.cached {
		return
	}
	p.cached = true
	if len(s.clock) < s.keeps {
		s.clock = append(s.clock, p)
		return
	}
	for s.clock[s.hand].used {
		s.clock[s.hand].used = false
		s.hand = (s.hand + 1) % len(s.clock)
	}
	s.clock[s.hand].cached = false
	s.clock[s.hand] = p
	s.hand = (s.hand + 1) % len(s.clock)
}
