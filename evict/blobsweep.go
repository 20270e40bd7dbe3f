package evict

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// Generations that have become whole on disk are found by passes over those that
// have no blob, and a pass by sweeps. Where most pages are only in RAM that is
// nearly every generation, at every pass. So a page of each that was not on disk is
// remembered: while it still is not, nothing is read of the generation.

const (
	// blobSweepTime is the pause between two sweeps.
	blobSweepTime = 2 * time.Second
	// blobSweepMax bounds the generations of one sweep.
	blobSweepMax = 1024
)

// blobSweep is the pass that is under way, or what is remembered of the last one.
// Only sweepBlobs uses it, one at a time.
//
// It takes 16 bytes for each generation without a blob, up to a quarter more amid a
// pass where they have become more, and twice that while a pass begins or ends. A
// generation that has gone or got its blob is forgotten when the pass ends.
type blobSweep struct {
	found  []blobless // without a blob when the pass began, ascending by id
	looked int        // how many of them this pass has looked at; all: none is under way
	failed bool       // a blob could not be written in this pass
}

// blobless is a generation without a blob.
type blobless struct {
	id    index.ObjectID
	lacks pages.ID // a page of it that was not on disk at the last look; 0: none is known
}

// begin lists the generations without a blob. What was remembered of them stays.
func (s *blobSweep) begin(x *index.Index) {
	found := make([]blobless, 0, len(s.found))
	_ = x.EachGeneration(func(g *index.Generation) error {
		if !g.HasBlob() {
			found = append(found, blobless{id: g.ID})
		}
		return nil
	})
	slices.SortFunc(found, func(a, b blobless) int { return cmp.Compare(a.id, b.id) })
	old := s.found
	for n := range found {
		for len(old) > 0 && old[0].id < found[n].id {
			old = old[1:]
		}
		if len(old) > 0 && old[0].id == found[n].id {
			found[n].lacks = old[0].lacks
		}
	}
	s.found, s.looked, s.failed = found, 0, false
}

func (s *blobSweep) over() bool { return s.looked == len(s.found) }

// end ends the pass, wherever it is.
func (s *blobSweep) end() {
	lacking := slices.DeleteFunc(s.found, func(b blobless) bool { return b.lacks == 0 })
	s.found = append([]blobless(nil), lacking...) // of its size; nothing is kept for none
	s.looked = len(s.found)
}

// blobLoop gives generations that have become whole on disk their blobs.
func (t *Tiers) blobLoop(ctx context.Context) {
	defer pages.LongSlice()()
	tick := time.NewTicker(blobSweepTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.followBad()
		t.sweepBlobs(ctx, blobSweepMax)
	}
}

// sweepBlobs looks at up to max generations without a blob, and goes on there the
// next time. When the pass is over nothing happens until another one is wanted, as
// it is after a failure.
func (t *Tiers) sweepBlobs(ctx context.Context, max int) {
	b, s := &t.blobs, &t.blobs.sweep
	if s.over() && !t.beginPass() {
		return
	}
	full := false
	for end := min(s.looked+max, len(s.found)); s.looked < end && ctx.Err() == nil; {
		next := &s.found[s.looked]
		s.looked++
		g := t.Index.GenerationByID(next.id)
		if err := t.sweepOne(ctx, g, next); err != nil && !errors.Is(err, index.ErrNotExist) {
			s.failed = true
			t.blobFailed(ctx, g, err)
			if full = isFull(err); full {
				break // the others will not fare better
			}
		}
	}
	if full || s.over() {
		s.end()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.dirty, b.failed = b.dirty || s.failed, s.failed
	}
}

// beginPass begins a pass, if pages have come to disk or blobs have become stale
// since the last one began.
func (t *Tiers) beginPass() bool {
	b := &t.blobs
	b.mu.Lock()
	stale := t.Index.StaleBlobs()
	wanted := b.dirty || stale != b.stale
	b.dirty, b.stale = false, stale // what comes from now on may be missed by this one
	b.mu.Unlock()
	if wanted {
		b.sweep.begin(t.Index)
	}
	return wanted
}

// sweepOne writes the blob of a generation if all its pages are on disk, and remembers
// in b which is not. g is nil if the generation has gone.
func (t *Tiers) sweepOne(ctx context.Context, g *index.Generation, b *blobless) error {
	if g == nil || g.HasBlob() {
		b.lacks = 0
		return nil
	}
	if b.lacks != 0 && t.stillLacks(b.lacks) {
		return nil
	}
	b.lacks = 0
	ids, err := t.pageList(g)
	if err != nil {
		return err
	}
	if n := slices.IndexFunc(ids, t.res.onlyInRAM); n >= 0 {
		b.lacks = ids[n]
		return nil
	}
	if b.lacks, err = t.lacking(ids); err != nil || b.lacks != 0 {
		return err
	}
	_, err = t.writeBlob(ctx, g, false)
	return err
}

// stillLacks reports whether a page is known not to be on disk. Nothing is read of
// one that is in RAM. Where the residency has not heard yet that it has come to disk,
// another pass follows, for noteBlobs is called after that; where the residency could
// not be told, when the page is written again.
func (t *Tiers) stillLacks(id pages.ID) bool {
	if t.res.onlyInRAM(id) {
		return true
	}
	p, err := t.Index.Page(id)
	return err == nil && p.Disk() == 0
}
