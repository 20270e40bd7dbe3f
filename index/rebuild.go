package index

import (
	"database/sql/driver"
	"fmt"

	"ckptfs/pages"
)

// Recover publishes a generation from its blob: into an index that is being
// rebuilt, or that has forgotten it. Ids are taken from the blob where nothing
// else has them. onDisk gives the real bytes of an object, 0 if there is none.
// It returns nil, with missing > 0, if pages are neither on disk nor known to
// the index, and ErrExist if the generation is published.
// The error is ErrCorrupt if the blob contradicts itself.
func (x *Index) Recover(b *Blob, onDisk func(pages.Key) (int64, error)) (g *Generation, missing int, err error) {
	m, err := ParseManifest(b.Manifest)
	if err != nil {
		return nil, 0, corruptf("the manifest in a blob: %v", err)
	}
	d, err := m.DeriveRestored(b.Document.Digest, b.Document.WorldSize)
	if err != nil {
		return nil, 0, corruptf("the manifest in a blob: %v", err)
	}
	if b.Document.Name() != b.Identity.Name || len(d.Keys) != len(b.Pages) {
		return nil, 0, corruptf("a blob has another identity or other pages than its manifest")
	}
	d.InModel(b.Model.Name)
	d.TailHash, d.HasTail = b.TailHash, b.HasTail
	p := &Publication{Manifest: m, Derived: d, Attr: b.Attr, SubAttrs: b.SubAttrs, Published: b.Published, Used: b.Used, Prefixes: []ObjectID{b.Parent}}
	p.Contents = &Contents{Manifest: b.Manifest, Layout: m.Layout(b.Document.WorldSize), Pages: make([]pages.ID, len(b.Pages))}
	changes, missing, err := x.recoverPages(b, p, onDisk)
	if err != nil || missing > 0 {
		return nil, missing, err
	}
	if p.Identity, err = x.recoverIdentity(b); err != nil {
		return nil, 0, err
	}
	if p.ID, err = x.freeID(b.ID); err != nil {
		return nil, 0, err
	}
	attr := p.Identity.Attr()
	if g, _, err = x.Publish(p); err != nil {
		return nil, 0, err
	}
	if _, err = x.SetDisk(changes); err != nil {
		return g, 0, err
	}
	attr.Mtime = max(attr.Mtime, b.Published)
	if err = x.SetIdentityAttr(p.Identity, func(Attr) Attr { return attr }); err != nil {
		return g, 0, err
	}
	if b.State == Current && b.SupersededBy == 0 {
		return g, 0, nil
	}
	return g, 0, x.SetState([]StateChange{{g, b.State, b.SupersededBy}})
}

// recoverPages finds the pages of a blob, or makes them anew.
func (x *Index) recoverPages(b *Blob, p *Publication, onDisk func(pages.Key) (int64, error)) (changes []DiskChange, missing int, err error) {
	rows, err := x.PagesByKey(p.Derived.Keys)
	if err != nil {
		return nil, 0, err
	}
	made := make(map[pages.Key]pages.ID)
	for slot, key := range p.Derived.Keys {
		if rows[slot] != nil {
			p.Contents.Pages[slot] = rows[slot].ID
			continue
		}
		if id, ok := made[key]; ok {
			p.Contents.Pages[slot] = id
			continue
		}
		stored, err := onDisk(key)
		if err != nil {
			return nil, 0, err
		}
		if stored == 0 {
			missing++
			continue
		}
		id, err := x.freeID(ObjectID(b.Pages[slot]))
		if err != nil {
			return nil, 0, err
		}
		made[key] = pages.ID(id)
		p.Contents.Pages[slot] = pages.ID(id)
		_, group, _ := p.Contents.Layout.At(slot)
		p.NewPages = append(p.NewPages, NewPage{ID: pages.ID(id), Key: key, Bytes: p.Contents.Layout.Groups[group].PageBytes, Attr: b.PageAttrs[slot]})
		changes = append(changes, DiskChange{ID: pages.ID(id), Bytes: stored})
	}
	return changes, missing, nil
}

// recoverIdentity finds the blob's model and identity, or makes them.
func (x *Index) recoverIdentity(b *Blob) (*Identity, error) {
	m := x.Model(b.Model.Name)
	if m == nil {
		id, err := x.freeID(b.Model.ID)
		if err != nil {
			return nil, err
		}
		if m, err = x.createModel(id, b.Model.Name, b.Model.Attr, 0); err != nil {
			return nil, err
		}
	}
	if i := m.Identity(b.Identity.Name); i != nil {
		if i.Document() == nil {
			return i, x.SetDocument(i, b.Document, 0)
		}
		return i, nil
	}
	id, err := x.freeID(b.Identity.ID)
	if err != nil {
		return nil, err
	}
	mtime := m.Attr()
	i, err := x.createIdentity(id, m, b.Identity.Name, b.Document, b.Identity.Attr, 0)
	if err != nil {
		return nil, err
	}
	if err := x.SetModelAttr(m, func(Attr) Attr { return mtime }); err != nil {
		return nil, err
	}
	return i, x.SetDocumentAttr(i, func(Attr) Attr { return b.DocumentAttr })
}

// freeID is the wanted id if no object has it, else another one. No id up to it
// is given out later.
func (x *Index) freeID(want ObjectID) (ObjectID, error) {
	taken := want == 0 || x.ModelByID(want) != nil || x.IdentityByID(want) != nil || x.GenerationByID(want) != nil
	if !taken {
		found, err := x.Pages([]pages.ID{pages.ID(want)})
		if err != nil {
			return 0, err
		}
		taken = found[0] != nil
	}
	if taken {
		if want = x.NextID(); want == 0 {
			return 0, ErrFull
		}
		return want, nil
	}
	return want, x.SkipIDs(want)
}

// SkipIDs makes sure that no id up to last is given out: something outside of
// the index has it.
func (x *Index) SkipIDs(last ObjectID) error {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	for {
		next := x.ids.next.Load()
		if next > uint64(last) {
			return nil
		}
		if uint64(last) < x.ids.end.Load() {
			if x.ids.next.CompareAndSwap(next, uint64(last)+1) {
				return nil
			}
			continue
		}
		end := uint64(last) + 1 + idBlock
		if err := x.updateLocked("skipping ids", 0, func(tx *conn) error { return setNextID(tx, end) }, nil); err != nil {
			return err
		}
		if err := x.Sync(); err != nil {
			return err
		}
		x.ids.next.Store(uint64(last) + 1)
		x.ids.end.Store(end)
		return nil
	}
}

// Remembers reports whether the blob's generation was retired after its
// publication, as far as is remembered.
func (x *Index) Remembers(b *Blob) (retired bool, err error) {
	var n int64
	err = x.readers.read(func(c *conn) error {
		n, err = c.integer("SELECT count(*) FROM retired WHERE generation = ? AND at >= ?", int64(b.ID), b.Published)
		return err
	})
	return n > 0, err
}

// Tier returns which disk tier the index was last used with, "" if none, and how
// often it was opened with it.
func (x *Index) Tier() (id string, starts int64, err error) {
	err = x.readers.read(func(c *conn) error {
		return c.query("SELECT id, starts FROM tier", func(row []driver.Value) error {
			id, starts = row[0].(string), row[1].(int64)
			return nil
		})
	})
	if err != nil {
		err = fmt.Errorf("index: reading the disk tier's id: %w", err)
	}
	return id, starts, err
}

// SetTier keeps both, and returns when they are on stable storage.
func (x *Index) SetTier(id string, starts int64) error {
	err := x.free("keeping the disk tier's id", 0, func(tx *conn) error {
		if _, err := tx.exec("DELETE FROM tier"); err != nil {
			return err
		}
		_, err := tx.exec("INSERT INTO tier VALUES (?, ?)", id, starts)
		return err
	}, nil)
	if err != nil {
		return err
	}
	return x.Sync()
}
