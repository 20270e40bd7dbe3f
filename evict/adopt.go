package evict

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// adoption is how the page files of a former daemon are taken up: published pages
// are entered and charged, files that nothing needs removed. Few are looked at
// before anybody is served, of very many the rest beside the service: until a
// file's turn comes, its page is found by its file, cannot be evicted, and is
// charged by an estimate.
//
// The lock is held over the look at a few files, reads of the index included, and
// while a page is forgotten. Locks of residency, loads and Live are taken under
// it.
type adoption struct {
	on   atomic.Bool
	done chan struct{} // closed when it has ended, or goes on at the next start

	mu       sync.Mutex
	before   pages.ID          // files of pages from here on are new
	charged  map[pages.ID]bool // by others: stagings, pages that are open and gone
	area     int               // the next one to look through
	estimate int64             // what the budget was charged for all that is looked at
	found    int64             // and what it should have been
}

// adoptBatch is how many files are looked at under the lock.
const adoptBatch = 256

// AdoptRAM begins to take up the files of a former daemon. done says that it is
// through; if not, within has passed, and AdoptRest does the rest. staged tells of
// the stagings' pages. Nobody is served yet.
func (t *Tiers) AdoptRAM(within time.Duration, staged func(pages.ID) bool) (done bool, err error) {
	if err := t.adoptKept(); err != nil {
		return false, fmt.Errorf("RAM tier: %w", err)
	}
	a := &t.adoption
	a.before, a.charged, a.done = pages.ID(t.Index.NextID()), map[pages.ID]bool{}, make(chan struct{})
	background := a.before != 0 && t.RAM.Kind() == pages.RAMTmpfs
	if a.before == 0 { // the index has no room for a new number; there are no new files then
		a.before = math.MaxUint64
	}
	for id, dead := range t.Live.unpublished() {
		a.charged[id] = true
		if st, err := t.RAM.Stat(id); dead && err == nil {
			t.Budget.Hold(Charge(st.Bytes))
		}
	}
	a.on.Store(true)
	for deadline := time.Now().Add(within); a.area < pages.RAMAreas; a.area++ {
		if background && time.Now().After(deadline) {
			return false, t.estimateRest()
		}
		if err := t.adoptArea(a.area, staged); err != nil {
			return false, err
		}
	}
	t.adopted()
	close(a.done)
	return true, nil
}

// estimateRest charges all that the tmpfs holds and nobody has been charged for.
func (t *Tiers) estimateRest() error {
	used, _, err := t.RAM.Usage()
	if err != nil {
		return fmt.Errorf("RAM tier: %w", err)
	}
	held, _ := t.Budget.Usage()
	t.adoption.estimate = max(used-held, t.adoption.found)
	t.Budget.Hold(t.adoption.estimate)
	return nil
}

// Adopting reports whether page files are still to be taken up.
func (t *Tiers) Adopting() bool { return t.adoption.on.Load() }

// AdoptRest takes up what AdoptRAM has left, beside the service. What an error
// leaves is taken up at the next start.
func (t *Tiers) AdoptRest(ctx context.Context, staged func(pages.ID) bool) error {
	a := &t.adoption
	defer close(a.done)
	for ; a.area < pages.RAMAreas; a.area++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.adoptArea(a.area, staged); err != nil {
			return err
		}
	}
	t.adopted()
	return nil
}

// adopted replaces the estimate by what was found.
func (t *Tiers) adopted() {
	a := &t.adoption
	a.mu.Lock()
	t.Budget.Hold(a.found - a.estimate)
	a.found, a.estimate = 0, 0
	a.on.Store(false)
	a.mu.Unlock()
}

// awaitAdopted waits until all files are taken up that are to be, or ctx ends. It
// returns the bytes of those that are not, by the estimate.
func (t *Tiers) awaitAdopted(ctx context.Context) (leftBytes int64) {
	a := &t.adoption
	if !t.Adopting() {
		return 0
	}
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.estimate-a.found, 0)
}

func (t *Tiers) adoptArea(area int, staged func(pages.ID) bool) error {
	ids, err := t.RAM.IDs(area)
	if err != nil {
		return fmt.Errorf("RAM tier: %w", err)
	}
	slices.Sort(ids)
	for some := range slices.Chunk(ids, adoptBatch) {
		if err := t.adoptSome(some, staged); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tiers) adoptSome(ids []pages.ID, staged func(pages.ID) bool) error {
	a := &t.adoption
	a.mu.Lock()
	defer a.mu.Unlock()
	ids = slices.DeleteFunc(ids, func(id pages.ID) bool { return id >= a.before || a.charged[id] })
	rows, err := t.Index.Pages(ids)
	if err != nil {
		return err
	}
	for i, p := range rows {
		st, err := t.RAM.Stat(ids[i])
		if errors.Is(err, syscall.ENOENT) {
			continue // it went meanwhile
		}
		if err != nil {
			return err
		}
		// Whoever brings a page from disk has charged it. In this order, since a
		// load begins only where there is no file, and ends with the entry.
		if t.loads.has(ids[i]) {
			continue
		}
		if _, known := t.res.homeOf(ids[i]); known {
			continue
		}
		if p == nil {
			err = t.adoptOtherLocked(ids[i], st, staged)
		} else {
			err = t.adoptPageLocked(p, st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adoptPageLocked enters a published page that is in RAM.
func (t *Tiers) adoptPageLocked(p *index.Page, st pages.Stat) error {
	if st.Bytes != p.Bytes {
		// Never seen; a page file is complete before its row is there.
		t.Log.Error("a page file has the wrong size", "page", uint64(p.ID), "bytes", st.Bytes, "want", p.Bytes)
		return t.removeUnchargedLocked(p.ID)
	}
	t.adoption.found += Charge(p.Bytes)
	t.res.add(p, 0, false)
	return nil
}

// adoptOtherLocked looks at a file without a row: a staging's, one that is still
// open, or one that nothing needs.
func (t *Tiers) adoptOtherLocked(id pages.ID, st pages.Stat, staged func(pages.ID) bool) error {
	switch {
	case staged(id): // charged by its staging
		t.adoption.charged[id] = true
		return nil
	case t.Live.Leased(id):
		t.adoption.charged[id] = true
		t.adoption.found += Charge(st.Bytes)
		return nil
	}
	return t.removeUnchargedLocked(id)
}

func (t *Tiers) removeUnchargedLocked(id pages.ID) error {
	k, err := t.RAM.Remove(id)
	if k.Name != "" {
		t.keep(k)
	}
	return err
}

// forgetRAM takes the storage of a page in RAM away, whether its turn to be taken
// up has come or not. Of one that is just being brought there, the load does it
// when it ends. A staged page is charged by its staging, file or not: a killed
// daemon may have removed the file before.
func (t *Tiers) forgetRAM(id pages.ID, charge int64, staged bool) {
	if t.loads.abandon(id) {
		return
	}
	a := &t.adoption
	adopting := a.on.Load()
	if adopting {
		a.mu.Lock()
		defer a.mu.Unlock()
		adopting = a.on.Load()
	}
	inRAM := t.res.take(id)
	if !inRAM {
		if inRAM = t.hasFile(id); inRAM && adopting && id < a.before && !a.charged[id] {
			a.found += charge // which the estimate covers
		}
	}
	if inRAM {
		// An unlink on a tmpfs fails only if the tier itself is gone.
		_ = t.removeCopy(id, charge)
	} else if staged {
		t.Budget.Free(charge)
	}
}

// LostInRAM lists the published pages that should be in RAM and are not, and of
// which no disk copy is known. All files must have been taken up; serving says
// that pages come and go meanwhile.
func (t *Tiers) LostInRAM(serving bool) (lost []pages.ID, err error) {
	only, err := t.Index.RAMOnlyPages()
	if err != nil {
		return nil, err
	}
	for _, id := range only {
		if t.InRAM(id) || t.adoption.charged[id] || serving && t.hasFile(id) {
			continue
		}
		lost = append(lost, id)
	}
	return lost, nil
}
