package evict

import (
	"context"
	"errors"

	"ckptfs/index"
	"ckptfs/pages"
)

// Reconcile compares the disk tier with the index, beside the service. Blobs
// come first, for they may say that the index has forgotten something; then
// objects that no page needs are removed, ones that are not recorded are
// recorded, recorded ones that are not there are looked for, and the fill is
// counted anew.
//
// With keep nothing of a page is removed: the index has just been made anew.
func (t *Tiers) Reconcile(ctx context.Context, keep bool) error {
	if t.Disk == nil {
		return nil
	}
	c := comparison{t: t, keep: keep, seen: map[pages.Key]struct{}{}}
	for _, step := range []func(context.Context) error{c.blobs, c.flags, c.objects, c.records} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if _, err := t.Disk.Recount(ctx); err != nil {
		return err
	}
	if c.orphans+c.found+c.gone+c.again > 0 {
		t.Log.Info("the disk tier and the index agree again", "objects_removed", c.orphans, "copies_recorded", c.found,
			"copies_gone", c.gone, "generations_again", c.again)
	}
	return t.Index.SetDiskBytes(t.Disk.Usage().ContentBytes())
}

// comparison is one pass of Reconcile.
type comparison struct {
	t    *Tiers
	keep bool
	seen map[pages.Key]struct{} // objects that are there

	orphans, found, gone, again int
}

// blobs looks for blobs of generations that the index does not have. Their
// generations were retired, or the index has forgotten them.
func (c *comparison) blobs(ctx context.Context) error {
	t := c.t
	var strange []string
	err := t.Disk.EachBlob(ctx, func(name string, _ int64) error {
		id, ok := index.BlobID(name)
		if name == startsBlob {
			return nil
		}
		if g := t.Index.GenerationByID(id); !ok || g == nil || index.BlobName(g) != name {
			strange = append(strange, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range strange {
		if err := c.strangeBlob(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) strangeBlob(ctx context.Context, name string) error {
	t := c.t
	b, err := readBlob(t.Index, t.Disk, name)
	switch {
	case errors.Is(err, pages.ErrAbsent), errors.Is(err, pages.ErrLost):
		return nil
	case errors.Is(err, index.ErrCorrupt):
		t.Log.Error("what a generation is contradicts itself", "blob", name, "error", err)
		return t.Disk.RemoveBlob(name)
	case err != nil:
		c.keep = true // it may need any object
		return nil
	}
	if g := t.Index.GenerationByID(b.ID); g != nil && index.BlobName(g) == name {
		return nil // published in this instant
	}
	retired, err := t.Index.Remembers(b)
	if err != nil {
		return err
	}
	if !retired {
		g, missing, err := t.Index.Recover(b, t.onDiskBytes)
		switch {
		case err == nil && missing == 0:
			c.again++
			c.recovered(g)
			if index.BlobName(g) == name {
				return t.Index.SetBlob([]*index.Generation{g}, true)
			}
		case errors.Is(err, index.ErrExist), errors.Is(err, index.ErrCorrupt), err == nil && !c.keep:
		case err == nil:
			return nil // nothing is removed now
		default: // the others, and the rest of the comparison, do not wait for it
			t.Log.Warn("a generation that the index has forgotten cannot be published now; the next start tries again", "blob", name, "error", err)
			c.keep = true
			return nil
		}
	}
	return t.Disk.RemoveBlob(name)
}

// recovered takes up a generation that the index had forgotten.
func (c *comparison) recovered(g *index.Generation) {
	t := c.t
	t.Log.Warn("a generation that the index had forgotten is published again", "identity", g.Identity.Name, "generation", g.Name)
	contents, err := t.Index.Contents(g)
	if err != nil {
		return
	}
	for _, id := range contents.Pages {
		t.Live.Publish(id)
	}
	t.followDisk(contents.Pages)
	t.Published(g, contents, index.Kinship{}, Brought{})
	if t.Again != nil {
		t.Again(g)
	}
}

// flags corrects what the index says of blobs that are not there.
func (c *comparison) flags(ctx context.Context) error {
	t := c.t
	have := map[string]bool{}
	if err := t.Disk.EachBlob(ctx, func(name string, _ int64) error { have[name] = true; return nil }); err != nil {
		return err
	}
	return t.Index.EachGeneration(func(g *index.Generation) error {
		if !g.HasBlob() || have[index.BlobName(g)] {
			return ctx.Err()
		}
		_, err := t.Disk.ReadBlob(index.BlobName(g))
		if errors.Is(err, pages.ErrAbsent) || errors.Is(err, pages.ErrLost) {
			err = t.Index.SetBlob([]*index.Generation{g}, false)
			t.noteBlobs()
		}
		return err
	})
}

// objects removes those that nothing needs and records those that are not
// recorded.
func (c *comparison) objects(ctx context.Context) error {
	t := c.t
	return t.Disk.EachKey(ctx, func(k pages.Key, stored int64) error {
		p, there, err := t.Index.PageByKey(k)
		switch {
		case err != nil:
			return err
		case there && p.Disk() == 0:
			c.found++
			t.record([]written{{p, max(stored, 1)}})
		case !there && !c.keep:
			c.orphans++
			t.removeObject(k)
		}
		c.seen[k] = struct{}{}
		return nil
	})
}

// records looks for objects that are recorded and were not seen. After a power
// loss an object that was not synced may be gone.
func (c *comparison) records(ctx context.Context) error {
	t := c.t
	var doubtful []pages.ID
	err := t.Index.EachPage(func(r index.PageRow) error {
		if _, seen := c.seen[r.Key]; !seen && r.Disk != 0 {
			doubtful = append(doubtful, r.ID)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	for _, id := range doubtful {
		p, err := t.Index.Page(id)
		if errors.Is(err, index.ErrNotExist) || err == nil && p.Disk() == 0 {
			continue
		}
		if err != nil {
			return err
		}
		there, err := t.Disk.Has(p.Key)
		if err != nil || there {
			continue // trouble, or written meanwhile
		}
		c.gone++
		if _, err := t.setDisk([]index.DiskChange{{ID: id}}); err != nil {
			return err
		}
		if !t.InRAM(id) && !t.hasFile(id) {
			_ = t.lost(p, errors.New("its object is not there"))
		}
	}
	return nil
}
