package evict

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ckptfs/index"
)

// DroppedRAM tells how emptying the RAM tier went. Bytes are those of pages.
type DroppedRAM struct {
	Of             int   `json:"of"` // pages there were in RAM
	OfBytes        int64 `json:"of_bytes"`
	DirtyBytes     int64 `json:"dirty_bytes"` // of them, what had no copy on disk
	Written        int   `json:"written"`     // to disk, because they had no copy there
	WrittenBytes   int64 `json:"written_bytes"`
	Dropped        int   `json:"dropped"` // from RAM
	DroppedBytes   int64 `json:"dropped_bytes"`
	Leased         int   `json:"leased"` // stay: somebody has them open, or a staging has them
	LeasedBytes    int64 `json:"leased_bytes"`
	Unwritten      int   `json:"unwritten"` // stay: they could not be written to disk
	UnwrittenBytes int64 `json:"unwritten_bytes"`
}

// DropRAM writes the published pages that have no disk copy to disk, so that they
// survive a power loss, and then removes all that may go from RAM. Nothing is
// retired for it: what the disk does not take stays, and so does what is in use.
// Pages that come meanwhile are left alone. It ends early when ctx ends.
func (t *Tiers) DropRAM(ctx context.Context, tell func(DroppedRAM)) (DroppedRAM, error) {
	var d DroppedRAM
	t.awaitAdopted(ctx)
	for !t.waiting.over() && ctx.Err() == nil { // pages of publications since the start
		time.Sleep(10 * time.Millisecond)
	}
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	es := t.res.all()
	for _, e := range es {
		d.Of, d.OfBytes = d.Of+1, d.OfBytes+e.bytes()
		if e.dirty() {
			d.DirtyBytes += e.bytes()
		}
	}
	tell(d)
	err := t.writeAll(ctx, es, func(e *resident) {
		d.Written, d.WrittenBytes = d.Written+1, d.WrittenBytes+e.bytes()
	}, func() { tell(d) })
	if err != nil {
		for _, e := range es {
			if e.dirty() {
				d.Unwritten, d.UnwrittenBytes = d.Unwritten+1, d.UnwrittenBytes+e.bytes()
			}
		}
		return d, err
	}
	t.followBad()
	spared := sparing{t: t}
	for _, e := range es {
		spared.look()
		if ctx.Err() != nil {
			return d, ctx.Err()
		}
		bytes := e.bytes()
		switch {
		case !t.InRAM(e.id): // it went meanwhile
			d.Dropped, d.DroppedBytes = d.Dropped+1, d.DroppedBytes+bytes
		case e.dirty():
			d.Unwritten, d.UnwrittenBytes = d.Unwritten+1, d.UnwrittenBytes+bytes
		case t.evictCopy(e.id, spared.leased):
			d.Dropped, d.DroppedBytes = d.Dropped+1, d.DroppedBytes+bytes
		default:
			d.Leased, d.LeasedBytes = d.Leased+1, d.LeasedBytes+bytes
		}
	}
	tell(d)
	return d, nil
}

// writeAll writes those of the pages that have no disk copy, and sees that all
// copies survive a power loss. wrote is called for each, tell now and then.
func (t *Tiers) writeAll(ctx context.Context, es []*resident, wrote func(*resident), tell func()) error {
	dirty := slices.DeleteFunc(slices.Clone(es), func(e *resident) bool { return !e.dirty() })
	if t.WritePolicy == WriteNever {
		dirty = nil
	}
	margin := t.blobMargin()
	for range 2 { // the second time for what somebody else was writing
		for batch := range slices.Chunk(dirty, flushBatch) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			t.writeBack(ctx, batch, storing{again: true, margin: margin, count: &t.Counts.WrittenDrop})
			for _, e := range batch {
				if !e.dirty() {
					wrote(e)
				}
			}
			tell()
		}
		dirty = slices.DeleteFunc(dirty, func(e *resident) bool { return !e.dirty() })
	}
	t.saveBlobs(ctx)
	if err := t.Disk.SyncAll(); err != nil {
		return fmt.Errorf("the disk tier could not be synced, so all stays in RAM: %w", err)
	}
	return t.Index.Sync()
}

// blobMargin is what the blobs of all generations take at most that have none yet.
// They are written when their pages are, and must not push anything out.
func (t *Tiers) blobMargin() (bytes int64) {
	_ = t.Index.EachGeneration(func(g *index.Generation) error {
		if !g.HasBlob() {
			bytes += 2*g.ManifestBytes + 64*int64(g.PageCount) + 4*blockBytes // the identity's document is in it too
		}
		return nil
	})
	return bytes
}

// all lists the published pages in RAM.
func (r *residency) all() []*resident {
	var es []*resident
	for i := range r.shards {
		s := &r.shards[i]
		s.Lock()
		for _, e := range s.pages {
			es = append(es, e)
		}
		s.Unlock()
	}
	return es
}
