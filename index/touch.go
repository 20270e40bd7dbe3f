package index

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// touched are the generations whose recency is newer in memory than in the
// database.
type touched struct {
	mu struct {
		sync.Mutex
		generations map[*Generation]struct{}
	}
}

func (t *touched) add(g *Generation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.generations == nil {
		t.mu.generations = make(map[*Generation]struct{})
	}
	t.mu.generations[g] = struct{}{}
}

func (t *touched) forget(g *Generation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.generations, g)
}

func (t *touched) has(g *Generation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.mu.generations[g]
	return ok
}

// take empties it.
func (t *touched) take() []*Generation {
	t.mu.Lock()
	defer t.mu.Unlock()
	gs := slices.Collect(maps.Keys(t.mu.generations))
	t.mu.generations = nil
	return gs
}

// recency orders publications and lookups. It is the time, nanoseconds since
// 1970, as long as the clock goes forward; where it goes back, or stands still,
// the next number.
type recency struct{ last atomic.Int64 }

// tick gives an event its place.
func (r *recency) tick(now int64) int64 {
	for {
		last := r.last.Load()
		if next := max(now, last+1); r.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// seen is told of a place that has been given before.
func (r *recency) seen(used int64) {
	for last := r.last.Load(); last < used && !r.last.CompareAndSwap(last, used); last = r.last.Load() {
	}
}

// Recency is the place of the last event: what is touched or published later has
// a higher Used.
func (x *Index) Recency() int64 { return x.recency.last.Load() }

// Touch notes that a lookup returned a generation now, nanoseconds since 1970:
// it is the most recent one, and if it was superseded it is current again, of
// which again tells. It does no I/O: FlushTouched writes it, or Close.
func (x *Index) Touch(g *Generation, now int64) (again bool) {
	for !again && !g.Retired() {
		s := State(g.state.Load())
		if !s.Superseded() {
			break
		}
		if again = g.state.CompareAndSwap(int32(s), int32(s.current())); again {
			g.supersededBy.Store(0)
			x.Note(g, now, "current again: a lookup returned it")
		}
	}
	for used := x.recency.tick(now); !g.Retired(); {
		old := g.used.Load()
		if old >= used {
			break
		}
		if g.used.CompareAndSwap(old, used) {
			x.touched.add(g)
			break
		}
	}
	return again
}

// flushBatch bounds how long others wait for the writer.
const flushBatch = 1024

// FlushTouched writes what Touch and Note noted. The daemon calls it every few seconds;
// a crash loses what was noted since.
func (x *Index) FlushTouched() error {
	for left := x.touched.take(); len(left) > 0; {
		batch := left[:min(flushBatch, len(left))]
		err := x.noteDown("writing recency", func(tx *conn) error {
			for _, g := range batch {
				_, err := tx.exec("UPDATE generations SET used = ?, state = ?, superseded_by = ? WHERE id = ?",
					g.Used(), int64(g.State()), int64(g.SupersededBy()), int64(g.ID))
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			for _, g := range left {
				x.touched.add(g)
			}
			return err
		}
		left = left[len(batch):]
	}
	return x.flushNotes()
}

// StateChange is a generation's new state. By is the generation that has taken
// its place, 0 if none has.
type StateChange struct {
	Generation *Generation
	State      State
	By         ObjectID
}

// SetState changes the states of generations in one transaction. Those that
// have been retired meanwhile are left out.
func (x *Index) SetState(changes []StateChange) error {
	return x.update("changing states", 0,
		func(tx *conn) error { return storeStates(tx, changes) },
		func() { applyStates(changes) })
}

func storeStates(tx *conn, changes []StateChange) error {
	for _, c := range changes {
		_, err := tx.exec("UPDATE generations SET state = ?, superseded_by = ? WHERE id = ?",
			int64(c.State), int64(c.By), int64(c.Generation.ID))
		if err != nil {
			return err
		}
	}
	return nil
}

func applyStates(changes []StateChange) {
	for _, c := range changes {
		c.Generation.state.Store(int32(c.State))
		c.Generation.supersededBy.Store(uint64(c.By))
	}
}
