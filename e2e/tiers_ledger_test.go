package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fate is what a client knows of a generation.
type fate int

const (
	begun     fate = iota // its rename has not returned: it may be there, whole, or not
	published             // its rename has returned 0
	durable               // and an fsync of it has
	removing              // rm -r has begun: it may be there, whole, or not
	removed               // rm -r has returned
)

// ledger is what clients know of the generations of one identity.
type ledger struct {
	ident string
	id    identity
	shape func(identity, []uint32) generation // smallGeneration

	mu   sync.Mutex
	rnd  *rand.Rand
	gens map[string]*entry
	next uint64

	neverSync bool // nothing is made durable for now
}

type entry struct {
	g    generation
	name string // digests take long
	ps   []page
	fate fate
	busy int // readers that hold it to be there
}

func newLedger(ident string, id identity, seed uint64) *ledger {
	return &ledger{ident: ident, id: id, shape: smallGeneration, rnd: rand.New(rand.NewPCG(seed, 3)), gens: map[string]*entry{}}
}

// begin enters a generation that nobody has begun: a new conversation or the
// continuation of one.
func (l *ledger) begin() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		seed, n := l.next, 100+l.rnd.IntN(900)
		if l.rnd.IntN(3) > 0 && l.next > 0 {
			seed = l.next - 1 - uint64(l.rnd.IntN(int(min(l.next, 5))))
		} else {
			l.next++
		}
		g := l.shape(l.id, conversation(10_000+seed, n))
		if name := g.name(); l.gens[name] == nil {
			l.gens[name] = &entry{g: g, name: name, ps: g.pages()}
			return l.gens[name]
		}
	}
}

func (l *ledger) set(e *entry, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.fate = f
}

// pick chooses a generation that is there and stays so until release. nil if
// there is none.
func (l *ledger) pick() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.gens { // in random order
		if e.fate == published || e.fate == durable {
			e.busy++
			return e
		}
	}
	return nil
}

func (l *ledger) release(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.busy--
}

// pickToRemove chooses one that nobody reads, when there are more than keep.
func (l *ledger) pickToRemove(keep int) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var victim *entry
	for _, e := range l.gens {
		if e.fate != published && e.fate != durable {
			continue
		}
		if keep--; e.busy == 0 {
			victim = e
		}
	}
	if victim == nil || keep >= 0 {
		return nil
	}
	victim.fate = removing
	return victim
}

func (l *ledger) dir(e *entry) string { return filepath.Join(l.ident, e.name) }

// check compares every byte of the generation.
func (e *entry) check(dir string) error {
	for _, p := range e.ps {
		if err := checkPage(dir, p); err != nil {
			return err
		}
	}
	return nil
}

// publishOne publishes a generation; sometimes it makes it durable.
func (l *ledger) publishOne() error {
	e := l.begin()
	s := staging{ident: l.ident, name: "put-" + e.name, g: e.g}
	err := s.begin()
	if err == nil {
		_, err = s.writeMissing(-1, 0)
	}
	if err == nil {
		err = s.rename()
	}
	if err != nil {
		return fmt.Errorf("publishing %s: %w", e.name, err)
	}
	l.set(e, published)
	if l.chance(6) && !l.neverSync {
		return l.makeDurable(e)
	}
	return nil
}

func (l *ledger) chance(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rnd.IntN(n) == 0
}

// makeDurable syncs a generation's directory. It may be removed meanwhile.
func (l *ledger) makeDurable(e *entry) error {
	d, err := os.Open(l.dir(e))
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.fate >= removing {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fsync of %s: %w", e.name, err)
	}
	e.fate = durable
	return nil
}

// readOne compares every byte of a generation; now and then it looks it up first.
func (l *ledger) readOne() error {
	e := l.pick()
	if e == nil {
		return nil
	}
	defer l.release(e)
	if l.chance(2) {
		return l.restore(e)
	}
	return e.check(l.dir(e))
}

// restore looks a generation up and reads it under the lookup's lease.
func (l *ledger) restore(e *entry) error {
	f, err := openFind(l.ident)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := converse(f, findRequest{Tokens: e.g.Tokens}.bytes())
	if err != nil {
		return fmt.Errorf("lookup: %w", err)
	}
	if r.Generation != e.name {
		return fmt.Errorf("lookup of %s found %+v", e.name, r)
	}
	return e.check(l.dir(e))
}

// removeOne removes one if there are more than keep.
func (l *ledger) removeOne(keep int) error {
	e := l.pickToRemove(keep)
	if e == nil {
		time.Sleep(pollEvery) // the others need the lock too
		return nil
	}
	if err := os.RemoveAll(l.dir(e)); err != nil {
		return err
	}
	if _, err := os.Lstat(l.dir(e)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("after the removal of %s: %w", e.name, err)
	}
	l.set(e, removed)
	return nil
}

// settle compares the tree with what clients know, after a restart in which
// nothing may be lost, and decides what they did not know.
func (l *ledger) settle(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	listed := map[string]bool{}
	for _, name := range names(t, l.ident) {
		listed[name] = true
	}
	delete(listed, "identity.json")
	for name, e := range l.gens {
		there := listed[name]
		delete(listed, name)
		switch {
		case there && e.fate == removed:
			t.Errorf("%s was removed, and is there", name)
		case !there && (e.fate == published || e.fate == durable):
			t.Errorf("%s was published, and is not there", name)
		case !there:
			delete(l.gens, name)
			continue
		}
		if there {
			if err := e.check(l.dir(e)); err != nil {
				t.Errorf("%s (fate %d): %v", name, e.fate, err)
			}
		}
		if e.fate != durable {
			e.fate = published
		}
	}
	for name := range listed {
		t.Errorf("%s is there, nobody has begun it", name)
	}
}

// unserved reports whether an error only says that nobody serves the mount.
func unserved(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED)
}
