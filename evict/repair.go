package evict

import (
	"context"
	"errors"
	"slices"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// ReasonRepaired is why a repair retires a generation.
const ReasonRepaired index.Reason = "a repair found that pages of it have no copy"

// Repair corrects what Check finds, as far as it can be corrected, in the order
// in which nothing is removed that something else turns out to need. It returns
// what it did, in words. Nobody may be using the store, which is open for
// writing.
func Repair(ctx context.Context, s Store, now time.Time) (did []Finding, err error) {
	r := repair{Store: s, now: now}
	for _, step := range []func(context.Context) error{r.forgotten, r.records, r.holes, r.rows, r.orphans, r.blobs} {
		if err := step(ctx); err != nil {
			return r.did, err
		}
	}
	return r.did, nil
}

type repair struct {
	Store
	now  time.Time
	keep bool // a blob could not be read: it may need any object
	did  []Finding
}

func (r *repair) done(k FindingKind, text string) { r.did = append(r.did, Finding{k, text}) }

// forgotten publishes what the index does not have, unless it was retired.
func (r *repair) forgotten(ctx context.Context) error {
	if r.Disk == nil {
		return nil
	}
	var names []string
	if err := r.Disk.EachBlob(ctx, func(name string, _ int64) error { names = append(names, name); return nil }); err != nil {
		return err
	}
	for _, name := range names {
		if name == startsBlob {
			continue
		}
		b, err := readBlob(r.Index, r.Disk, name)
		switch {
		case errors.Is(err, pages.ErrAbsent), errors.Is(err, pages.ErrLost):
			continue
		case errors.Is(err, index.ErrCorrupt):
			r.done(FindBlob, "removed the unreadable blob "+name)
			if err := r.Disk.RemoveBlob(name); err != nil {
				return err
			}
			continue
		case err != nil:
			r.keep = true
			continue
		}
		if g := r.Index.GenerationByID(b.ID); g != nil && index.BlobName(g) == name {
			continue
		}
		if err := r.forgottenOne(name, b); err != nil {
			return err
		}
	}
	return nil
}

func (r *repair) forgottenOne(name string, b *index.Blob) error {
	retired, err := r.Index.Remembers(b)
	if err != nil {
		return err
	}
	if !retired {
		g, missing, err := r.Index.Recover(b, func(k pages.Key) (int64, error) { return objectBytes(r.Disk, k) })
		switch {
		case err == nil && missing == 0:
			r.done(FindForgotten, "published "+g.Name+" again")
			if index.BlobName(g) == name {
				return r.Index.SetBlob([]*index.Generation{g}, true)
			}
		case err != nil && !errors.Is(err, index.ErrExist) && !errors.Is(err, index.ErrCorrupt):
			return err
		}
	}
	r.done(FindForgotten, "removed the blob "+name+" of a generation that is not there")
	return r.Disk.RemoveBlob(name)
}

// records makes the index say which objects are there.
func (r *repair) records(ctx context.Context) error {
	if r.Disk == nil {
		return nil
	}
	var changes []index.DiskChange
	err := r.Index.EachPage(func(row index.PageRow) error {
		stored, err := objectBytes(r.Disk, row.Key)
		if err == nil && stored != row.Disk {
			changes = append(changes, index.DiskChange{ID: row.ID, Bytes: stored})
		}
		return ctx.Err()
	})
	if err != nil || len(changes) == 0 {
		return err
	}
	r.done(FindRecord, "corrected the records of disk copies")
	_, err = r.Index.SetDisk(changes)
	return err
}

// holes retires generations that need a page which has no copy.
func (r *repair) holes(context.Context) error {
	lost := map[pages.ID]bool{}
	err := r.Index.EachPage(func(row index.PageRow) error {
		inRAM := false
		if r.RAM != nil {
			st, err := r.RAM.Stat(row.ID)
			inRAM = err == nil && st.Bytes == row.Bytes
		}
		if row.Disk != 0 || inRAM {
			return nil
		}
		stored, err := objectBytes(r.Disk, row.Key)
		lost[row.ID] = err == nil && stored == 0
		return nil
	})
	if err != nil {
		return err
	}
	var gs []*index.Generation
	err = r.Index.EachGeneration(func(g *index.Generation) error {
		ids, err := r.Index.PageIDs(g)
		if err == nil && slices.ContainsFunc(ids, func(id pages.ID) bool { return lost[id] }) {
			gs = append(gs, g)
		}
		return err
	})
	if err != nil || len(gs) == 0 {
		return err
	}
	for _, g := range gs {
		r.done(FindHole, "retired "+g.Name)
		if r.Disk != nil && g.HasBlob() {
			if err := r.Disk.RemoveBlob(index.BlobName(g)); err != nil {
				return err
			}
		}
	}
	_, err = r.Index.Retire(gs, ReasonRepaired, r.now.UnixNano(), 0, nil)
	return err
}

// rows drops those that no generation links.
func (r *repair) rows(context.Context) error {
	ids, err := r.Index.UnlinkedPages()
	if err != nil || len(ids) == 0 {
		return err
	}
	r.done(FindLeftRow, "dropped rows of pages without a link")
	_, err = r.Index.DropPages(ids)
	return err
}

// orphans removes objects that no page needs. Page files in RAM are left to the
// next start, which knows the stagings.
func (r *repair) orphans(ctx context.Context) error {
	if r.Disk == nil || r.keep {
		return nil
	}
	n := 0
	err := r.Disk.EachKey(ctx, func(k pages.Key, _ int64) error {
		_, there, err := r.Index.PageByKey(k)
		if err != nil || there {
			return err
		}
		n++
		return r.Disk.Remove(k)
	})
	if n > 0 {
		r.done(FindOrphan, "removed objects that nothing needs")
	}
	return err
}

// blobs corrects what the index says of them.
func (r *repair) blobs(ctx context.Context) error {
	if r.Disk == nil {
		return nil
	}
	return r.Index.EachGeneration(func(g *index.Generation) error {
		if !g.HasBlob() {
			return ctx.Err()
		}
		_, err := readBlob(r.Index, r.Disk, index.BlobName(g))
		if !errors.Is(err, pages.ErrAbsent) && !errors.Is(err, pages.ErrLost) && !errors.Is(err, index.ErrCorrupt) {
			return nil
		}
		r.done(FindBlob, "wrote the blob of "+g.Name+" again")
		body, err := r.Index.Blob(g)
		if err == nil {
			err = r.Disk.PutBlob(ctx, index.BlobName(g), body, true)
		}
		if err != nil {
			err = r.Index.SetBlob([]*index.Generation{g}, false)
		}
		return err
	})
}

// objectBytes looks for a sound object: what it takes, 0 if the disk confirms
// that there is none.
func objectBytes(d *pages.Disk, k pages.Key) (int64, error) {
	if d == nil {
		return 0, nil
	}
	o, err := d.OpenObject(k)
	if errors.Is(err, pages.ErrAbsent) || errors.Is(err, pages.ErrLost) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer o.Close()
	return max(o.StoredBytes(), 1), nil
}
