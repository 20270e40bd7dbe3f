package evict

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

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

// blobs knows which blobs are being written and which generations are being
// retired. The lock is a leaf.
type blobs struct {
	mu      sync.Mutex
	writing map[index.ObjectID]chan struct{}
	going   map[index.ObjectID]int // by how many, who may come to nothing
	dirty   bool                   // pages came to disk since the last pass began
	stale   uint64                 // Index.StaleBlobs when it began
	failed  bool                   // one could not be written since the last pass that wrote all: told once

	lists atomic.Int64 // page lists read to see whether a generation is whole
	sweep blobSweep    // mu does not guard it
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
	ids, err := t.pageList(g)
	if err != nil {
		return false, err
	}
	if lacks, err := t.lacking(ids); err != nil || lacks != 0 {
		return false, err
	}
	return t.writeBlob(ctx, g, durable)
}

// writeBlob writes the blob of a generation whose pages are all on disk, and makes
// room for it once. True if it has one then.
func (t *Tiers) writeBlob(ctx context.Context, g *index.Generation, durable bool) (bool, error) {
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

func (t *Tiers) pageList(g *index.Generation) ([]pages.ID, error) {
	t.blobs.lists.Add(1)
	return t.Index.PageIDs(g)
}

// lacking returns the first of the pages that no record says to be on disk, 0 if
// all of them are there.
func (t *Tiers) lacking(ids []pages.ID) (pages.ID, error) {
	rows, err := t.Index.Pages(ids)
	if err != nil {
		return 0, err
	}
	if n := notOnDisk(rows); n >= 0 {
		return ids[n], nil
	}
	return 0, nil
}

// notOnDisk is where the first page is that has gone or is not on disk, -1 if there
// is none.
func notOnDisk(rows []*index.Page) int {
	return slices.IndexFunc(rows, func(p *index.Page) bool { return p == nil || p.Disk() == 0 })
}

// noteBlobs is told that pages have come to disk, or that a generation without a
// blob may be whole for another reason.
func (t *Tiers) noteBlobs() {
	t.blobs.mu.Lock()
	t.blobs.dirty = true
	t.blobs.mu.Unlock()
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

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
