// Package staging holds generations that are being written or taken apart: the
// stagings below .staging, and generations on their way out. It makes plans,
// finds pages that are there already, and publishes.
//
// A staging is a journal and a few files in a directory of the RAM tier, so a
// daemon that is killed loses none; it ends by publication, by rm -r, by its
// timeout, or with the RAM tier.
package staging

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

// Writers tells of open handles that can write to a page and whose writes pass
// through this process.
type Writers interface {
	// Writing reports whether such a handle is open. One that is being closed
	// is waited for, a bounded time.
	Writing(id pages.ID) bool
}

// Config is what a Manager works with. All of it is needed that does not say
// otherwise.
type Config struct {
	Index   *index.Index
	RAM     *pages.RAM
	Live    *evict.Live
	Budget  *evict.Budget
	Writers Writers
	Log     *slog.Logger

	MaxStaging       int           // stagings at a time
	Timeout          time.Duration // a staging nobody holds or changes is discarded after it
	AdmissionTimeout time.Duration // how long a manifest's reservation waits

	// AskRoom has the RAM tier evict for a reservation that waits. It does not
	// wait itself.
	AskRoom func(missingBytes int64)
	// Evict retires generations of the identities, the coldest first, until
	// enough says that it is or nothing is left that may go.
	Evict func(identities []*index.Identity, enough func() bool)
	// Retiring is told of generations that are about to go, and the function
	// that it returns whether they have. With no lock held.
	Retiring func([]*index.Generation) (done func())
	// Retired is told of every generation that has gone, with no lock held.
	Retired func(id index.ObjectID)
	// Save makes pages durable before they are published, if that is wanted.
	Save func(ctx context.Context, fresh []evict.Unpublished) error
	// Changed is told, with no lock held, whenever the link counts of pages
	// have changed. It returns when no process sees the old ones.
	Changed func(ids []pages.ID)
	// Waited is told how long a manifest has waited for RAM. May be nil.
	Waited func(time.Duration)
	// Now is the clock.
	Now func() time.Time
}

// Manager owns all stagings.
//
// Lock order: a Draft's accept lock, then its mu; a Manager's mu is taken last
// and nothing is called under it. No I/O and no SQLite under a Draft's mu but
// appends to its journal, which are copies in memory.
type Manager struct {
	Config
	ram     *pages.RAM
	dir     string
	writers Writers
	quotas  quotas
	// sealing keeps pages from being sealed by one size and given another. Files are
	// looked at under it, but nothing is waited for, except a handle on its way out
	// where the system gives no leases.
	sealing pages.Turns
	// unsettled is a page that Settle is to look at once more; 0: none.
	unsettled atomic.Uint64
	done      map[index.Op]bool // operations that the journals say were done
	dropped   []PageRef         // what the journals, while they are read, say was let go
	Late      []Late            // stagings found published when the journals were read

	mu struct {
		sync.RWMutex
		byID    map[index.ObjectID]*Draft
		byName  map[nameKey]*Draft
		count   int                                        // stagings, ghosts not included
		created uint64                                     // stagings ever entered
		byKey   map[pages.Key]map[pages.ID]*stagedPage     // pages that stagings have written
		byPage  map[pages.ID]*stagedPage                   // the same, and scratch files
		holders map[index.ObjectID]map[index.ObjectID]bool // identity -> its stagings
	}
}

type nameKey struct {
	identity index.ObjectID
	ghost    bool
	name     string
}

// New makes a Manager and reads the stagings of a former daemon back. With
// discard they are removed instead: the keeper was killed too, or this is a
// fresh mount.
func New(cfg Config, discard bool) (*Manager, error) {
	m := &Manager{Config: cfg, ram: cfg.RAM, writers: cfg.Writers, dir: filepath.Join(cfg.RAM.Dir(), "s"), done: map[index.Op]bool{}}
	m.mu.byID = map[index.ObjectID]*Draft{}
	m.mu.byName = map[nameKey]*Draft{}
	m.mu.byKey = map[pages.Key]map[pages.ID]*stagedPage{}
	m.mu.byPage = map[pages.ID]*stagedPage{}
	m.mu.holders = map[index.ObjectID]map[index.ObjectID]bool{}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("stagings: %w", err)
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("stagings: %w", err)
	}
	for _, e := range entries {
		if err := m.recover(filepath.Join(m.dir, e.Name()), discard); err != nil {
			return nil, fmt.Errorf("staging %s: %w", e.Name(), err)
		}
	}
	m.unref(m.dropped)
	m.dropped = nil
	return m, nil
}

// Done reports whether the journals say that the request was carried out.
func (m *Manager) Done(op index.Op) bool { return m.done[op] }

func (m *Manager) draftDir(id index.ObjectID) string {
	return filepath.Join(m.dir, fmt.Sprintf("%016x", uint64(id)))
}

// ByID finds a staging, or a ghost, by its id.
func (m *Manager) ByID(id index.ObjectID) (*Draft, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, ok := m.mu.byID[id]
	return d, ok
}

// ByName finds the staging of this name in the identity.
func (m *Manager) ByName(identity index.ObjectID, name string) (*Draft, bool) {
	return m.named(nameKey{identity, false, name})
}

// Ghost finds the retired generation of this name whose tree is being removed.
func (m *Manager) Ghost(identity index.ObjectID, name string) (*Draft, bool) {
	return m.named(nameKey{identity, true, name})
}

func (m *Manager) named(k nameKey) (*Draft, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, ok := m.mu.byName[k]
	return d, ok
}

// List gives the identity's stagings with ids greater than after, ascending.
func (m *Manager) List(identity, after index.ObjectID) []*Draft {
	return m.ofIdentity(identity, func(d *Draft) bool { return d.ID > after && !d.Ghost() })
}

// OfIdentity gives all stagings and ghosts of the identity.
func (m *Manager) OfIdentity(identity index.ObjectID) []*Draft {
	return m.ofIdentity(identity, func(*Draft) bool { return true })
}

func (m *Manager) ofIdentity(identity index.ObjectID, want func(*Draft) bool) []*Draft {
	m.mu.RLock()
	ds := make([]*Draft, 0, len(m.mu.holders[identity]))
	for id := range m.mu.holders[identity] {
		ds = append(ds, m.mu.byID[id])
	}
	m.mu.RUnlock()
	ds = slices.DeleteFunc(ds, func(d *Draft) bool { return !want(d) })
	slices.SortFunc(ds, func(a, b *Draft) int { return int(int64(a.ID) - int64(b.ID)) })
	return ds
}

// All gives every staging and ghost.
func (m *Manager) All() []*Draft {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ds := make([]*Draft, 0, len(m.mu.byID))
	for _, d := range m.mu.byID {
		ds = append(ds, d)
	}
	return ds
}

// Count is the number of stagings.
func (m *Manager) Count() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.count
}

// Ghosts is the number of retired generations whose trees are being removed.
func (m *Manager) Ghosts() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.mu.byID) - m.mu.count
}

// Created is how many stagings there have been since the start.
func (m *Manager) Created() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.created
}

// Create makes an empty staging. EEXIST if the name is taken, EAGAIN if there
// are --max-staging, EPERM while the identity has no document.
func (m *Manager) Create(identity *index.Identity, name string, attr index.Attr, op index.Op) (*Draft, error) {
	if identity.Document() == nil {
		return nil, refuse(syscall.EPERM, "the identity has no identity.json yet")
	}
	d := newDraft(m, index.ObjectID(m.Index.NextID()), identity, name, false, attr)
	if err := m.enter(d); err != nil {
		return nil, err
	}
	j, err := createJournal(m.draftDir(d.ID), record{Do: doNew, Op: op, ID: d.ID, Identity: identity.ID, Name: []byte(name), Attr: &attr})
	if err == nil {
		d.journal = j
		err = j.commit(m.draftDir(d.ID))
	}
	if err != nil {
		m.leave(d)
		os.RemoveAll(m.draftDir(d.ID))
		return nil, err
	}
	return d, nil
}

// enter makes the staging known by id and name.
func (m *Manager) enter(d *Draft) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := nameKey{d.Identity.ID, d.mu.ghost, d.mu.name}
	if _, taken := m.mu.byName[k]; taken {
		return refuse(syscall.EEXIST, "%q is there already", d.mu.name)
	}
	if !d.mu.ghost {
		if m.mu.count >= m.MaxStaging {
			return refuse(syscall.EAGAIN, "%d stagings are open; the limit is --max-staging", m.mu.count)
		}
		m.mu.count++
		m.mu.created++
	}
	m.mu.byName[k] = d
	m.mu.byID[d.ID] = d
	if m.mu.holders[d.Identity.ID] == nil {
		m.mu.holders[d.Identity.ID] = map[index.ObjectID]bool{}
	}
	m.mu.holders[d.Identity.ID][d.ID] = true
	return nil
}

// leave undoes enter.
func (m *Manager) leave(d *Draft) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.byID[d.ID] != d {
		return
	}
	k := nameKey{d.Identity.ID, d.mu.ghost, d.mu.name}
	if m.mu.byName[k] == d {
		delete(m.mu.byName, k)
	}
	if !d.mu.ghost {
		m.mu.count--
	}
	delete(m.mu.byID, d.ID)
	delete(m.mu.holders[d.Identity.ID], d.ID)
	if len(m.mu.holders[d.Identity.ID]) == 0 {
		delete(m.mu.holders, d.Identity.ID)
	}
}

// addStaged makes a page that a staging wrote findable by its key.
func (m *Manager) addStaged(p *stagedPage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.byPage[p.ID] = p
	if p.Bytes == 0 {
		return
	}
	if m.mu.byKey[p.Key] == nil {
		m.mu.byKey[p.Key] = map[pages.ID]*stagedPage{}
	}
	m.mu.byKey[p.Key][p.ID] = p
}

// dropStaged forgets a staged page: published, or nobody holds it.
func (m *Manager) dropStaged(p *stagedPage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.byPage, p.ID)
	if ps := m.mu.byKey[p.Key]; ps != nil {
		delete(ps, p.ID)
		if len(ps) == 0 {
			delete(m.mu.byKey, p.Key)
		}
	}
}

// StagedPage finds a page that no generation has yet by its id.
func (m *Manager) StagedPage(id pages.ID) (PageRef, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, ok := m.mu.byPage[id]
	return PageRef{ID: id, staged: p}, ok
}

// Maker is the staging that made a page which no generation has yet.
func (m *Manager) Maker(id pages.ID) (*Draft, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.mu.byPage[id]; p != nil && p.owner != nil {
		return p.owner, true
	}
	return nil, false
}

func (m *Manager) stagedByKey(k pages.Key) []*stagedPage {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var ps []*stagedPage
	for _, p := range m.mu.byKey[k] {
		ps = append(ps, p)
	}
	return ps
}

func parseDraftDir(name string) (index.ObjectID, bool) {
	id, err := strconv.ParseUint(name, 16, 64)
	return index.ObjectID(id), err == nil
}
