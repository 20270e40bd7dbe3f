package evict

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// A generation that is whole on disk has a blob there too (index.Blob), so that
// the index can be made again from the disk tier alone. The index keeps which
// generations have theirs (HasBlob), so that looking costs nothing.
//
// Order at a retirement: the blob goes first, then the rows in one transaction,
// then the pages' objects. A crash in between leaves a generation without a
// blob, which gets it again, or objects that nothing needs, which are removed;
// never a blob of a generation that is retired, which a rebuild would publish
// again. (Unlinking is not synced: after a power loss the blob and the rows of a
// generation that was deleted in the last seconds may both be back.)

const (
	// blobSweepTime is the pause between two looks for generations that have
	// become whole.
	blobSweepTime = 2 * time.Second
	// blobSweepMax bounds the generations of one look.
	blobSweepMax = 1024
)

// blobs knows which blobs are being written and which generations are being
// retired. The lock is a leaf.
type blobs struct {
	mu      sync.Mutex
	writing map[index.ObjectID]chan struct{}
	going   map[index.ObjectID]int // by how many, who may come to nothing
	dirty   bool                   // pages came to disk since the last sweep began
	stale   uint64                 // Index.StaleBlobs when it began
	after   index.ObjectID         // where the sweep goes on; 0: at the beginning
	failed  bool                   // the last one could not be written: told once
}

func (b *blobs) init() {
	b.writing, b.going = map[index.ObjectID]chan struct{}{}, map[index.ObjectID]int{}
	b.dirty = true
}

// begin says that the generation's blob is about to be written: false if that is
// being done, or the generation is being retired.
func (b *blobs) begin(g *index.Generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.going[g.ID] > 0 || g.Retired() || b.writing[g.ID] != nil {
		return false
	}
	b.writing[g.ID] = make(chan struct{})
	return true
}

func (b *blobs) end(g *index.Generation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.writing[g.ID])
	delete(b.writing, g.ID)
}

// Retiring takes the blobs of generations away that are about to be retired, and
// keeps new ones from being written. The caller ends that with the function
// returned; those that are still published then get their blobs again. A blob
// that cannot be removed stays; Reconcile finds it.
func (t *Tiers) Retiring(gs []*index.Generation) (done func()) {
	if t.Disk == nil {
		return func() {}
	}
	b := &t.blobs
	for _, g := range gs {
		b.mu.Lock()
		b.going[g.ID]++
		wait := b.writing[g.ID]
		b.mu.Unlock()
		if wait != nil {
			<-wait
		} else if !g.HasBlob() && g.BlobVersion() == 0 { // else one that has become stale may be there
			continue
		}
		if err := t.Disk.RemoveBlob(index.BlobName(g)); err != nil {
			t.Log.Warn("the blob of a retired generation is left for the next look", "generation", g.Name, "error", err)
		}
	}
	return func() {
		left := slices.DeleteFunc(slices.Clone(gs), (*index.Generation).Retired)
		b.mu.Lock()
		for _, g := range gs {
			if b.going[g.ID]--; b.going[g.ID] == 0 {
				delete(b.going, g.ID)
			}
		}
		b.mu.Unlock()
		if len(left) == 0 {
			return
		}
		if err := t.Index.SetBlob(left, false); err != nil {
			t.Log.Debug("blobs that are gone could not be recorded", "error", err)
		}
		t.noteBlobs() // a pass that begins before that would not list them
	}
}

// saveBlob writes the generation's blob if all its pages are on disk. True if it
// has one then.
func (t *Tiers) saveBlob(ctx context.Context, g *index.Generation, durable bool) (bool, error) {
	if g.HasBlob() {
		return true, nil
	}
	whole, err := t.wholeOnDisk(g)
	if err != nil || !whole {
		return false, err
	}
	bytes, err := t.putBlob(ctx, g, durable)
	if diskFull(err) && t.diskRoom(ctx, bytes, 0) {
		_, err = t.putBlob(ctx, g, durable)
	}
	return err == nil && g.HasBlob(), err
}

// putBlob writes it and records that it is there, unless what it says has changed
// meanwhile. bytes is what it takes.
func (t *Tiers) putBlob(ctx context.Context, g *index.Generation, durable bool) (bytes int64, err error) {
	if !t.blobs.begin(g) {
		return 0, nil // somebody else does it, or it is not wanted any more
	}
	defer t.blobs.end(g)
	version := g.BlobVersion()
	body, err := t.Index.Blob(g)
	if err != nil || len(body) > pages.MaxBlobBytes {
		return 0, err
	}
	if err := t.Disk.PutBlob(ctx, index.BlobName(g), body, durable); err != nil {
		return int64(len(body)), err
	}
	return int64(len(body)), t.Index.SetBlobWritten(g, version)
}

func (t *Tiers) wholeOnDisk(g *index.Generation) (bool, error) {
	ids, err := t.Index.PageIDs(g)
	if err != nil {
		return false, err
	}
	rows, err := t.Index.Pages(ids)
	if err != nil {
		return false, err
	}
	for _, p := range rows {
		if p == nil || p.Disk() == 0 {
			return false, nil
		}
	}
	return true, nil
}

// noteBlobs is told that pages have come to disk.
func (t *Tiers) noteBlobs() {
	t.blobs.mu.Lock()
	t.blobs.dirty = true
	t.blobs.mu.Unlock()
}

// blobLoop gives generations that have become whole on disk their blobs.
func (t *Tiers) blobLoop(ctx context.Context) {
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

// errEnough ends a walk.
var errEnough = errors.New("enough")

// sweepBlobs looks at up to max generations without a blob, in the order of
// their ids, and goes on there the next time. Nothing happens if no page has
// come to disk since it began at the beginning.
func (t *Tiers) sweepBlobs(ctx context.Context, max int) {
	b := &t.blobs
	b.mu.Lock()
	if b.after == 0 {
		stale := t.Index.StaleBlobs()
		if !b.dirty && stale == b.stale {
			b.mu.Unlock()
			return
		}
		b.dirty, b.stale = false, stale
	}
	after := b.after
	b.mu.Unlock()
	next := t.Index.Blobless(after, max)
	failed := false
	for _, g := range next {
		after = g.ID
		if ctx.Err() != nil {
			return
		}
		if _, err := t.saveBlob(ctx, g, false); err != nil && !errors.Is(err, index.ErrNotExist) {
			failed = true
			t.blobFailed(ctx, g, err)
			if isFull(err) {
				break // the others will not fare better
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirty = b.dirty || failed
	b.failed = failed
	if b.after = after; len(next) < max || failed {
		b.after = 0
	}
}

// isFull reports whether a disk, or the tier's bound, was full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// blobFailed tells of it, once, unless the end of ctx is all that has happened.
func (t *Tiers) blobFailed(ctx context.Context, g *index.Generation, err error) {
	if errors.Is(err, ctx.Err()) {
		return
	}
	t.blobs.mu.Lock()
	told := t.blobs.failed
	t.blobs.failed = true
	t.blobs.mu.Unlock()
	if !told {
		t.Log.Warn("what a generation is could not be written beside its pages; it is tried again", "generation", g.Name, "error", err)
	}
}

// saveBlobs writes the blobs of all generations that are whole on disk, until
// ctx ends.
func (t *Tiers) saveBlobs(ctx context.Context) {
	_ = t.Index.EachGeneration(func(g *index.Generation) error {
		if ctx.Err() != nil {
			return errEnough
		}
		if _, err := t.saveBlob(ctx, g, false); err != nil && !errors.Is(err, index.ErrNotExist) {
			t.blobFailed(ctx, g, err)
			if isFull(err) {
				return errEnough
			}
		}
		return nil
	})
}
