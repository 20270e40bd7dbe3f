package evict

import (
	"iter"
	"sync"

	"ckptfs/index"
	"ckptfs/pages"
)

// Live holds the pages that somebody needs beyond what the index says: pages
// that stagings write or link, and pages that are open. It decides when the
// storage of a page goes: when no generation, no staging and no open handle
// needs it any more.
//
// A page is in one of these states here:
//
//	staged      made by a staging, no row in the index yet
//	published   has a row in the index
//	unlinked    has a row that no generation links any more; a staging keeps it
//	dying       its row is being deleted: it can no longer be linked
//	dead        no row and no staging; its storage stays while it is open
//
// The shard locks are leaves: nothing else is taken, and no I/O done, while one
// is held.
type Live struct {
	ram    *pages.RAM
	budget *Budget
	// removed takes away the storage of a page that nothing needs any more. row
	// is what its row was, nil for a page that never had one.
	removed func(id pages.ID, charge int64, row *index.Page)
	shards  [64]liveShard
}

type liveShard struct {
	sync.Mutex
	pages map[pages.ID]*livePage
}

type livePage struct {
	charge int64 // bytes it holds in the RAM tier
	refs   int   // stagings that write or link it
	opens  int   // open handles
	state  liveState
	linked bool        // of a dying page: a generation has got it after all
	row    *index.Page // of a dead page that had one
}

type liveState uint8

const (
	stateStaged liveState = iota
	statePublished
	stateUnlinked
	stateDying
	stateDead
)

// NewLive makes an empty table over the RAM tier and its budget.
func NewLive(ram *pages.RAM, budget *Budget) *Live {
	l := &Live{ram: ram, budget: budget}
	l.removed = l.removeStorage
	for i := range l.shards {
		l.shards[i].pages = make(map[pages.ID]*livePage)
	}
	return l
}

func (l *Live) shard(id pages.ID) *liveShard { return &l.shards[uint64(id)%uint64(len(l.shards))] }

// get finds the page or, for a published page that nobody held, enters it.
func (s *liveShard) get(id pages.ID, pageBytes int64) *livePage {
	p := s.pages[id]
	if p == nil {
		p = &livePage{charge: Charge(pageBytes), state: statePublished}
		s.pages[id] = p
	}
	return p
}

// Stage enters a page that a staging has just made; the staging holds it.
func (l *Live) Stage(id pages.ID, pageBytes int64) {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	s.pages[id] = &livePage{charge: Charge(pageBytes), refs: 1, state: stateStaged}
}

// Grow gives a staged page the size that it counts with: a scratch file has got
// its position. The caller has charged the budget.
func (l *Live) Grow(id pages.ID, pageBytes int64) {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	if p := s.pages[id]; p != nil {
		p.charge = Charge(pageBytes)
	}
}

// unpublished lists the pages without a row: those that stagings have made, and
// those that are dead and still open.
func (l *Live) unpublished() iter.Seq2[pages.ID, bool] {
	return func(yield func(id pages.ID, dead bool) bool) {
		for i := range l.shards {
			s := &l.shards[i]
			s.Lock()
			found := map[pages.ID]bool{}
			for id, p := range s.pages {
				if p.state == stateStaged || p.state == stateDead {
					found[id] = p.state == stateDead
				}
			}
			s.Unlock()
			for id, dead := range found {
				if !yield(id, dead) {
					return
				}
			}
		}
	}
}

// RefStaged has a staging hold a page that another has made. False if it is
// going or has gone: as long as anybody holds it, it has an entry here.
func (l *Live) RefStaged(id pages.ID) bool {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	p := s.pages[id]
	if p == nil || p.state >= stateDying {
		return false
	}
	p.refs++
	return true
}

// Ref has a staging hold the page, which the index has. False if it is going: it
// is then as good as absent. One that has gone is not known here any more, so the
// caller looks at the index afterwards: a row that is there then stays.
func (l *Live) Ref(id pages.ID, pageBytes int64) bool {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	p := s.get(id, pageBytes)
	if p.state >= stateDying {
		return false
	}
	p.refs++
	return true
}

// Abandon makes a staged page one that nobody can open or link any more; its
// staging lets it go then. False, and nothing has changed, if it is open, or if
// another staging holds it too.
func (l *Live) Abandon(id pages.ID) bool {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	p := s.pages[id]
	if p == nil || p.state != stateStaged || p.opens > 0 || p.refs != 1 {
		return false
	}
	p.state = stateDead
	return true
}

// Reclaim takes an Abandon back.
func (l *Live) Reclaim(id pages.ID) {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	if p := s.pages[id]; p != nil && p.state == stateDead && p.refs > 0 {
		p.state = stateStaged
	}
}

// Unref lets a staging's hold go. last says that no staging holds it any more,
// dropRow that the index still has a row which nothing links: the caller deletes
// it (index.DropPages) and then calls Dead for it. Storage of a page that nobody
// needs goes at once.
func (l *Live) Unref(id pages.ID) (last, dropRow bool) {
	s := l.shard(id)
	s.Lock()
	p := s.pages[id]
	if p == nil {
		s.Unlock()
		return true, false
	}
	if p.refs--; p.refs == 0 {
		last = true
		switch p.state {
		case stateStaged:
			p.state = stateDead
		case stateUnlinked:
			p.state, p.linked = stateDying, false
			dropRow = true
		}
	}
	s.settle(l, id, p)
	return last, dropRow
}

// settle forgets a page that needs no entry and removes its storage if it is
// dead and closed. It unlocks the shard.
func (s *liveShard) settle(l *Live, id pages.ID, p *livePage) {
	idle := p.refs == 0 && p.opens == 0
	gone := idle && p.state == stateDead
	if gone || idle && p.state == statePublished {
		delete(s.pages, id)
	}
	s.Unlock()
	if gone {
		l.removed(id, p.charge, p.row)
	}
}

func (l *Live) removeStorage(id pages.ID, charge int64, _ *index.Page) {
	// An unlink on a tmpfs fails only if the tier itself is gone.
	if _, err := l.ram.Remove(id); err == nil {
		l.budget.Free(charge)
	}
}

// Publish says that a generation has the page from now on: one that a staging has
// made, or one that only stagings have kept. A publication says so before anything
// else can be committed, so that it and Keep come in the order of their
// transactions. A page that is dying can be opened then, but not linked, until its
// caller has seen that its row could not be deleted.
func (l *Live) Publish(id pages.ID) {
	s := l.shard(id)
	s.Lock()
	switch p := s.pages[id]; {
	case p == nil:
	case p.state <= stateUnlinked:
		p.state = statePublished
	case p.state == stateDying:
		p.linked = true
	}
	s.Unlock()
}

// Keep is asked, inside the transaction that takes a page's last link away,
// whether a staging still needs its row. If not, the page is dying from here
// on: the caller ends that with Dead after the commit or Revive after a failure.
func (l *Live) Keep(id pages.ID) bool {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	p := s.get(id, 0)
	if p.refs > 0 {
		p.state = stateUnlinked
		return true
	}
	p.state, p.linked = stateDying, false
	return false
}

// Revive takes a Keep back: the transaction failed, the row is still there.
func (l *Live) Revive(id pages.ID) {
	s := l.shard(id)
	s.Lock()
	p := s.pages[id]
	if p == nil {
		s.Unlock()
		return
	}
	if p.state == stateDying || p.state == stateUnlinked {
		p.state = statePublished
	}
	s.settle(l, id, p)
}

// Dead says that the page's row is gone. Its storage goes now, or when the last
// handle on it is closed.
func (l *Live) Dead(row *index.Page) {
	s := l.shard(row.ID)
	s.Lock()
	p := s.get(row.ID, row.Bytes)
	p.charge = Charge(row.Bytes)
	p.state, p.linked = stateDead, false
	p.row = row
	s.settle(l, row.ID, p)
}

// Open counts a handle on the page. False if the page is dying or dead, and closed.
func (l *Live) Open(id pages.ID, pageBytes int64) bool {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	p := s.get(id, pageBytes)
	if p.state >= stateDying && !p.linked && p.opens == 0 {
		return false
	}
	p.opens++
	return true
}

// Adopt enters a page found open in the handle table at start, whose row is
// gone: dead, and kept until it is closed.
func (l *Live) Adopt(id pages.ID, pageBytes int64) {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	if s.pages[id] == nil {
		s.pages[id] = &livePage{charge: Charge(pageBytes), state: stateDead}
	}
	s.pages[id].opens++
}

// Close ends what Open began.
func (l *Live) Close(id pages.ID) {
	s := l.shard(id)
	s.Lock()
	p := s.pages[id]
	if p == nil {
		s.Unlock()
		return
	}
	p.opens--
	s.settle(l, id, p)
}

// Row is the row of a page that no generation has any more, and that is still
// open; nil for others.
func (l *Live) Row(id pages.ID) *index.Page {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	if p := s.pages[id]; p != nil {
		return p.row
	}
	return nil
}

// Leased reports whether the page is open or held by a staging.
func (l *Live) Leased(id pages.ID) bool {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	p := s.pages[id]
	return p != nil && (p.refs > 0 || p.opens > 0)
}

// Refs is how many stagings hold the page.
func (l *Live) Refs(id pages.ID) int {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	if p := s.pages[id]; p != nil {
		return p.refs
	}
	return 0
}

// IsOpen reports whether a handle on the page is open.
func (l *Live) IsOpen(id pages.ID) bool {
	s := l.shard(id)
	s.Lock()
	defer s.Unlock()
	p := s.pages[id]
	return p != nil && p.opens > 0
}

// Held reports whether a staging holds the page.
func (l *Live) Held(id pages.ID) bool { return l.Refs(id) > 0 }
