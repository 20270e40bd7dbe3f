package evict

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"ckptfs/index"
	"ckptfs/pages"
)

// Rebuilt tells what a rebuild of the index found in the disk tier.
type Rebuilt struct {
	Generations int // published again
	Known       int // blobs of generations that the index has
	Holes       int // blobs whose pages are not all on disk
	Bad         int // blobs that cannot be read as such
	Unsure      int // blobs that could not be read now
}

// Left is how many blobs could not be used.
func (r Rebuilt) Left() int { return r.Holes + r.Bad + r.Unsure }

// startsBlob counts the starts with this tier. The index counts them too: one
// that has seen fewer is an old copy.
const startsBlob = "starts"

// Rebuild publishes the generations whose blobs are in the disk tier and whose
// pages are all there, in the order of their publication. It removes nothing.
// The index may have generations already. Nobody may be using it.
func Rebuild(ctx context.Context, x *index.Index, d *pages.Disk, log *slog.Logger) (r Rebuilt, err error) {
	onDisk := map[pages.Key]int64{}
	if err := d.EachKey(ctx, func(k pages.Key, stored int64) error { onDisk[k] = max(stored, 1); return nil }); err != nil {
		return r, fmt.Errorf("disk tier: %w", err)
	}
	list, err := listBlobs(ctx, x, d, &r, log)
	if err != nil {
		return r, err
	}
	for _, b := range list {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if err := recoverBlob(x, d, b.name, onDisk, &r, log); err != nil {
			return r, err
		}
	}
	return r, nil
}

// blobEntry is a readable blob of the tier.
type blobEntry struct {
	name      string
	published int64
	last      index.ObjectID // the largest id in it
}

// listBlobs reads what blobs there are, in the order of publication, and makes
// sure that no id in them is given out to anything else.
func listBlobs(ctx context.Context, x *index.Index, d *pages.Disk, r *Rebuilt, log *slog.Logger) ([]blobEntry, error) {
	var list []blobEntry
	var last index.ObjectID
	err := d.EachBlob(ctx, func(name string, _ int64) error {
		if name == startsBlob {
			return nil
		}
		b, err := readBlob(x, d, name)
		switch {
		case errors.Is(err, pages.ErrAbsent):
			return nil
		case errors.Is(err, pages.ErrLost), errors.Is(err, index.ErrCorrupt):
			r.Bad++
			log.Error("what a generation is cannot be read from the disk tier", "blob", name, "error", err)
			return nil
		case err != nil:
			r.Unsure++
			log.Error("what a generation is cannot be read from the disk tier now", "blob", name, "error", err)
			return nil
		}
		e := blobEntry{name: name, published: b.Published, last: max(b.ID, b.Model.ID, b.Identity.ID)}
		if len(b.Pages) > 0 {
			e.last = max(e.last, index.ObjectID(slices.Max(b.Pages)))
		}
		last = max(last, e.last)
		list = append(list, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("disk tier: %w", err)
	}
	slices.SortFunc(list, func(a, b blobEntry) int { return int(min(max(a.published-b.published, -1), 1)) })
	return list, x.SkipIDs(last)
}

func readBlob(x *index.Index, d *pages.Disk, name string) (*index.Blob, error) {
	raw, err := d.ReadBlob(name)
	if err != nil {
		return nil, err
	}
	return x.ParseBlob(raw)
}

// recoverBlob publishes one generation again. The error is one of the index.
func recoverBlob(x *index.Index, d *pages.Disk, name string, onDisk map[pages.Key]int64, r *Rebuilt, log *slog.Logger) error {
	b, err := readBlob(x, d, name)
	if err != nil {
		r.Unsure++
		return nil // it was there a moment ago
	}
	g, missing, err := x.Recover(b, func(k pages.Key) (int64, error) { return onDisk[k], nil })
	switch {
	case errors.Is(err, index.ErrExist):
		r.Known++
		return nil
	case errors.Is(err, index.ErrCorrupt):
		r.Bad++
		log.Error("what a generation is contradicts itself", "blob", name, "error", err)
		return nil
	case err != nil:
		return err
	case missing > 0:
		r.Holes++
		return nil
	}
	r.Generations++
	if index.BlobName(g) != name {
		return nil // under another id: it gets a blob of its own, and this one goes
	}
	return x.SetBlob([]*index.Generation{g}, true)
}

// BeginTier says that a disk tier is used with an index from now on, and
// reports whether the index is an old copy: the tier has seen more starts.
// ErrTierChanged if the index has been used with another tier.
func BeginTier(ctx context.Context, x *index.Index, d *pages.Disk) (stale bool, err error) {
	id, starts, err := x.Tier()
	if err != nil {
		return false, err
	}
	if id != "" && id != d.ID() {
		return false, fmt.Errorf("%s: %w", d.Dir(), pages.ErrTierChanged)
	}
	var seen int64
	switch raw, err := d.ReadBlob(startsBlob); {
	case err == nil && len(raw) == 8:
		seen = int64(binary.LittleEndian.Uint64(raw))
	case err != nil && !errors.Is(err, pages.ErrAbsent) && !errors.Is(err, pages.ErrLost):
		return false, fmt.Errorf("disk tier: %w", err)
	}
	return id != "" && seen > starts, nil
}

// CountStart counts one more start in the index and in the tier. A tier that
// cannot be written keeps its count: then an old copy may not be told from the
// index.
func CountStart(ctx context.Context, x *index.Index, d *pages.Disk) error {
	_, starts, err := x.Tier()
	if err != nil {
		return err
	}
	if raw, err := d.ReadBlob(startsBlob); err == nil && len(raw) == 8 {
		starts = max(starts, int64(binary.LittleEndian.Uint64(raw)))
	}
	// The index first: one that has seen more than the tier is no old copy.
	if err := x.SetTier(d.ID(), starts+1); err != nil {
		return err
	}
	_ = d.PutBlob(ctx, startsBlob, startsCount(starts+1), true)
	_ = d.KeepOwnBlob(startsBlob)
	return nil
}

func startsCount(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
