package evict

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// resident is a published page that has a copy in the RAM tier. There may be
// millions, so it has what eviction looks at and no more: 64 bytes, and some 24 in
// the table of its shard. Who writes the page asks the index for the rest.
type resident struct {
	id        pages.ID
	pageBytes int32       // at most 1 GiB
	onDisk    atomic.Bool // the index says that the disk tier has it
	since     sinceStart  // when it came to RAM

	own     bool // only its home can have it
	loose   bool // what descends from the home need not have the page
	writing bool // a write-back is under way

	home index.ObjectID // see retention: the shortest generation that has it
	next *resident      // of the same home
	prev *resident

	busy     chan struct{}            // not nil while its RAM copy is being removed; closed then
	failures atomic.Pointer[failures] // nil: the last write-back, if any, succeeded
}

// failures are write-backs that failed in a row.
type failures struct {
	n       int32
	retryAt time.Duration // not written before
}

// sinceStart is a time since the start in hundredths of a second: some 490 days.
type sinceStart uint32

func sinceStartAt(d time.Duration) sinceStart { return sinceStart(d / (10 * time.Millisecond)) }

func (s sinceStart) duration() time.Duration { return time.Duration(s) * 10 * time.Millisecond }

// failed returns the failures so far, the zero value if there are none.
func (e *resident) failed() failures {
	if f := e.failures.Load(); f != nil {
		return *f
	}
	return failures{}
}

func (e *resident) bytes() int64 { return int64(e.pageBytes) }

// dirty reports whether the page is only in RAM.
func (e *resident) dirty() bool { return !e.onDisk.Load() }

// residency knows which published pages are in RAM. Shards are locked apart from
// the list by home; the list's lock may be taken under a shard's, never the
// other way round. Nothing else is called under either.
type residency struct {
	now      func() time.Duration
	shards   [64]residentShard
	removals atomic.Uint64 // counted under the page's shard's lock
	homes    struct {
		sync.Mutex
		m map[index.ObjectID]*resident // the first of a list
	}
}

type residentShard struct {
	sync.Mutex
	pages map[pages.ID]*resident
}

func (r *residency) shard(id pages.ID) *residentShard {
	return &r.shards[uint64(id)%uint64(len(r.shards))]
}

func newResidency() *residency {
	r := &residency{}
	for i := range r.shards {
		r.shards[i].pages = map[pages.ID]*resident{}
	}
	r.homes.m = map[index.ObjectID]*resident{}
	return r
}

// add enters a page, or gives one that is there its home. Its file is there, and
// stays until the page is entered.
func (r *residency) add(p *index.Page, home index.ObjectID, own bool) {
	s := r.shard(p.ID)
	s.Lock()
	defer s.Unlock()
	r.enterLocked(s, p, home, own)
}

// addSince is add where the file was there when removals was counted. False, and
// nothing is done, if it may have gone since.
func (r *residency) addSince(removals uint64, p *index.Page, home index.ObjectID, own bool) bool {
	s := r.shard(p.ID)
	s.Lock()
	defer s.Unlock()
	if s.pages[p.ID] == nil && r.removals.Load() != removals {
		return false
	}
	r.enterLocked(s, p, home, own)
	return true
}

// addCold enters a page without a home, unless it has been entered.
func (r *residency) addCold(p *index.Page) {
	s := r.shard(p.ID)
	s.Lock()
	defer s.Unlock()
	if s.pages[p.ID] == nil {
		r.enterLocked(s, p, 0, false)
	}
}

// enterLocked is add. The shard's lock is held.
func (r *residency) enterLocked(s *residentShard, p *index.Page, home index.ObjectID, own bool) {
	e := s.pages[p.ID]
	if e == nil {
		e = &resident{id: p.ID, pageBytes: int32(p.Bytes), since: sinceStartAt(r.now())}
		s.pages[p.ID] = e
	} else {
		r.unlist(e)
	}
	e.onDisk.Store(p.Disk() != 0)
	r.list(e, home, own, false)
}

// settle gives a page another home if it is in RAM. A loose home does not stand
// for all who have the page.
func (r *residency) settle(id pages.ID, home index.ObjectID, own, loose bool) {
	s := r.shard(id)
	s.Lock()
	defer s.Unlock()
	if e := s.pages[id]; e != nil {
		r.unlist(e)
		r.list(e, home, own, loose)
	}
}

// move gives a page that is still there another home.
func (r *residency) move(e *resident, home index.ObjectID, own, loose bool) {
	s := r.shard(e.id)
	s.Lock()
	defer s.Unlock()
	if s.pages[e.id] == e {
		r.unlist(e)
		r.list(e, home, own, loose)
	}
}

// followDisk takes over whether the page is on disk, which has just changed. The
// page is asked under the lock, so that the last one who asks has the last word.
func (r *residency) followDisk(p *index.Page) {
	s := r.shard(p.ID)
	s.Lock()
	defer s.Unlock()
	if e := s.pages[p.ID]; e != nil {
		e.onDisk.Store(p.Disk() != 0)
	}
}

// onlyInRAM reports whether the page is in RAM and not on disk. The index may know
// of its coming to disk a moment earlier.
func (r *residency) onlyInRAM(id pages.ID) bool {
	s := r.shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.pages[id]
	return e != nil && e.dirty()
}

// mistakesDisk reports whether a page in RAM has another state on disk than the
// index says.
func (r *residency) mistakesDisk(p *index.Page) bool {
	s := r.shard(p.ID)
	s.Lock()
	defer s.Unlock()
	e := s.pages[p.ID]
	return e != nil && e.dirty() != (p.Disk() == 0)
}

// list enters the page under its home; all that has to do with it is guarded by
// the list's lock.
func (r *residency) list(e *resident, home index.ObjectID, own, loose bool) {
	r.homes.Lock()
	defer r.homes.Unlock()
	e.home, e.own, e.loose = home, own, loose
	if e.next = r.homes.m[home]; e.next != nil {
		e.next.prev = e
	}
	r.homes.m[home] = e
}

func (r *residency) unlist(e *resident) {
	r.homes.Lock()
	defer r.homes.Unlock()
	if e.next != nil {
		e.next.prev = e.prev
	}
	switch {
	case e.prev != nil:
		e.prev.next = e.next
	case e.next != nil:
		r.homes.m[e.home] = e.next
	default:
		delete(r.homes.m, e.home)
	}
	e.next, e.prev = nil, nil
}

// at calls f with every page of a home. The list's lock is held.
func (r *residency) at(home index.ObjectID, f func(*resident)) {
	for e := r.homes.m[home]; e != nil; e = e.next {
		f(e)
	}
}

// find reports whether the page is in RAM. If its copy is just being removed,
// busy is closed when it has gone.
func (r *residency) find(id pages.ID) (there bool, busy <-chan struct{}) {
	s := r.shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.pages[id]
	if e == nil {
		return false, nil
	}
	return e.busy == nil, e.busy
}

// claim takes a page for removal of its RAM copy. False if it is not in RAM,
// taken already, being written, or leased (asked under the shard's lock, so that
// an opener either is seen here or sees the claim).
func (r *residency) claim(id pages.ID, leased func(pages.ID) bool) (*resident, bool) {
	s := r.shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.pages[id]
	if e == nil || e.busy != nil || e.writing || leased(id) {
		return nil, false
	}
	e.busy = make(chan struct{})
	return e, true
}

// removed forgets a claimed page: its RAM copy is gone.
func (r *residency) removed(e *resident) {
	s := r.shard(e.id)
	s.Lock()
	defer s.Unlock()
	delete(s.pages, e.id)
	r.removals.Add(1)
	r.unlist(e)
	close(e.busy)
}

// unclaim gives a claimed page back.
func (r *residency) unclaim(e *resident) {
	s := r.shard(e.id)
	s.Lock()
	defer s.Unlock()
	close(e.busy)
	e.busy = nil
}

// take forgets a page whatever holds it: its row is gone. It reports whether it
// was in RAM. A removal under way is waited for.
func (r *residency) take(id pages.ID) bool {
	for {
		s := r.shard(id)
		s.Lock()
		e := s.pages[id]
		if e == nil || e.busy == nil {
			if e != nil {
				delete(s.pages, id)
				r.removals.Add(1)
				r.unlist(e)
			}
			s.Unlock()
			return e != nil
		}
		busy := e.busy
		s.Unlock()
		<-busy
	}
}

// setWriting marks the page as being written back, or not. False if somebody
// else does it already or the page has gone.
func (r *residency) setWriting(e *resident, on bool) bool {
	s := r.shard(e.id)
	s.Lock()
	defer s.Unlock()
	if s.pages[e.id] != e || on && (e.writing || e.busy != nil) {
		return false
	}
	e.writing = on
	return true
}

// isWriting reports whether the page is being written back.
func (r *residency) isWriting(e *resident) bool {
	s := r.shard(e.id)
	s.Lock()
	defer s.Unlock()
	return s.pages[e.id] == e && e.writing
}

// of lists the pages of a home that are of the given part, the last made first:
// the tail goes before the history.
func (r *residency) of(home index.ObjectID, own bool) []*resident {
	r.homes.Lock()
	defer r.homes.Unlock()
	var es []*resident
	r.at(home, func(e *resident) {
		if e.own == own {
			es = append(es, e)
		}
	})
	slices.SortFunc(es, func(a, b *resident) int { return cmp.Compare(b.id, a.id) })
	return es
}

// place is where a page is listed.
func (r *residency) place(e *resident) (home index.ObjectID, own, loose bool) {
	r.homes.Lock()
	defer r.homes.Unlock()
	return e.home, e.own, e.loose
}

// owner is the only generation that can have the page; 0 if others may have it.
func (r *residency) owner(e *resident) index.ObjectID {
	if home, own, _ := r.place(e); own {
		return home
	}
	return 0
}

// rehome gives the pages of one home another one.
func (r *residency) rehome(from, to index.ObjectID) {
	for _, own := range []bool{false, true} {
		for _, e := range r.of(from, own) {
			_, _, loose := r.place(e)
			r.move(e, to, own && to == from, loose)
		}
	}
}

// summary counts the bytes of every home for the policy.
func (r *residency) summary() []retention.Resident {
	r.homes.Lock()
	defer r.homes.Unlock()
	all := make([]retention.Resident, 0, len(r.homes.m))
	for home := range r.homes.m {
		s := retention.Resident{Gen: retention.ID(home)}
		r.at(home, func(e *resident) {
			b := &s.Shared
			if e.own {
				b = &s.Own
			}
			if e.dirty() {
				b.Dirty += Charge(e.bytes())
			} else {
				b.Clean += Charge(e.bytes())
			}
		})
		all = append(all, s)
	}
	return all
}

// coldBytes is what pages take that nobody looked up and that are on disk too.
func (r *residency) coldBytes() (sum int64) {
	r.homes.Lock()
	defer r.homes.Unlock()
	r.at(0, func(e *resident) {
		if !e.dirty() {
			sum += Charge(e.bytes())
		}
	})
	return sum
}

// looseDirty lists the loose pages that are only in RAM.
func (r *residency) looseDirty() map[pages.ID]*resident {
	r.homes.Lock()
	defer r.homes.Unlock()
	es := map[pages.ID]*resident{}
	for home := range r.homes.m {
		r.at(home, func(e *resident) {
			if e.loose && e.dirty() {
				es[e.id] = e
			}
		})
	}
	return es
}

// dirty lists the pages that are only in RAM.
func (r *residency) dirty() []*resident {
	var es []*resident
	for i := range r.shards {
		s := &r.shards[i]
		s.Lock()
		for _, e := range s.pages {
			if e.dirty() {
				es = append(es, e)
			}
		}
		s.Unlock()
	}
	return es
}

// count is the number of published pages in RAM.
func (r *residency) count() int {
	n := 0
	for i := range r.shards {
		s := &r.shards[i]
		s.Lock()
		n += len(s.pages)
		s.Unlock()
	}
	return n
}

// unwritable reports whether the page is in RAM only, and given up: any such page
// if any is set, else one whose writes have failed.
func (r *residency) unwritable(id pages.ID, any bool) bool {
	s := r.shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.pages[id]
	return e != nil && e.busy == nil && e.dirty() && (any || e.failed().n >= maxFails)
}
