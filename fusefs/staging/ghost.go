package staging

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"ckptfs/index"
	"ckptfs/pages"
)

// ghostState is what a ghost's journal can't say in a few lines: its pages.
type ghostState struct {
	Pages []pages.ID
	Subs  map[uint64]index.Attr
}

// Unpublish takes a generation out of publication, in one transaction, and
// turns its tree into one that can change: below .staging under a new name, or
// (ghost) in its old place while rm -r takes its names away. In both it is never
// listed or found as a generation again. op is the request that did it.
func (m *Manager) Unpublish(g *index.Generation, name string, ghost bool, subs map[uint64]index.Attr, reason index.Reason, op index.Op) (*Draft, error) {
	c, err := m.Index.Contents(g)
	if err != nil {
		return nil, err
	}
	d := newDraft(m, g.ID, g.Identity, name, ghost, g.Attr())
	for sub, a := range subs {
		d.mu.sub[sub] = a
	}
	if err := d.fillFromGeneration(c); err != nil {
		return nil, err
	}
	if g.Retired() { // and its pages may have gone before they were held
		d.dropSlots()
		return nil, syscall.ENOENT
	}
	if err := d.writeGhost(c, op); err != nil {
		d.abandonGhost()
		return nil, err
	}
	if err := m.enter(d); err != nil {
		d.abandonGhost()
		return nil, err
	}
	if err := m.Retire([]*index.Generation{g}, reason, op); err != nil {
		m.leave(d)
		d.abandonGhost()
		return nil, err
	}
	if err := d.journal.commit(m.draftDir(d.ID)); err != nil {
		m.Log.Error("the tree of a retired generation will not outlive this daemon", "generation", g.Name, "error", err)
	}
	return d, nil
}

// fillFromGeneration holds the generation's pages for the draft.
func (d *Draft) fillFromGeneration(c *index.Contents) error {
	manifest, err := index.ParseManifest(c.Manifest)
	if err != nil {
		return err
	}
	ct := &content{manifest: manifest, layout: c.Layout}
	if ct.derived, err = manifest.DeriveRestored(d.doc.Digest, c.Layout.WorldSize); err != nil {
		return err
	}
	ct.derived.InModel(d.Identity.Model.Name)
	d.mu.content = ct
	d.mu.hasFile = true
	d.mu.slots = make([]slot, len(c.Pages))
	for i, id := range c.Pages {
		_, g, _ := c.Layout.At(i)
		if !d.m.Live.Ref(id, c.Layout.Groups[g].PageBytes) {
			d.dropSlots()
			return syscall.ENOENT
		}
		d.mu.slots[i].page = PageRef{ID: id}
	}
	return nil
}

func (d *Draft) dropSlots() {
	refs := make([]PageRef, 0, len(d.mu.slots))
	for i := range d.mu.slots {
		refs = append(refs, d.mu.slots[i].page)
	}
	d.m.unref(refs)
}

// writeGhost writes the draft's files; its journal gets its name only when the
// generation has been retired.
func (d *Draft) writeGhost(c *index.Contents, op index.Op) error {
	dir := d.m.draftDir(d.ID)
	attr := d.mu.attr
	j, err := createJournal(dir, record{Do: doNew, Op: op, ID: d.ID, Identity: d.Identity.ID, Name: []byte(d.mu.name), Ghost: d.mu.ghost, Attr: &attr}, record{Do: doManifest})
	if err != nil {
		return err
	}
	d.journal = j
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "manifest"), c.Manifest, 0o600),
		writeGob(filepath.Join(dir, "derived"), d.mu.content.derived),
		writeGob(filepath.Join(dir, "ghost"), ghostState{c.Pages, d.mu.sub}),
	)
}

func (d *Draft) abandonGhost() {
	if d.journal != nil {
		d.journal.close()
	}
	os.RemoveAll(d.m.draftDir(d.ID))
	d.dropSlots()
}

// Retire takes generations out of the index in one transaction and lets the
// storage of the pages go that nothing needs any more.
func (m *Manager) Retire(gs []*index.Generation, reason index.Reason, op index.Op) error {
	_, err := m.retire(gs, func(keep func(pages.ID) bool) (index.Retired, error) {
		return m.Index.Retire(gs, reason, m.Now().UnixNano(), op, keep)
	})
	return err
}

// RetireUnpinned is Retire for those that are not pinned. It returns which it has
// retired.
func (m *Manager) RetireUnpinned(gs []*index.Generation, reason index.Reason) ([]*index.Generation, error) {
	return m.retire(gs, func(keep func(pages.ID) bool) (index.Retired, error) {
		return m.Index.RetireUnpinned(gs, reason, m.Now().UnixNano(), keep)
	})
}

func (m *Manager) retire(gs []*index.Generation, do func(keep func(pages.ID) bool) (index.Retired, error)) ([]*index.Generation, error) {
	var asked []pages.ID
	done := m.Retiring(gs)
	r, err := do(func(id pages.ID) bool {
		asked = append(asked, id)
		return m.Live.Keep(id)
	})
	done()
	if err != nil {
		for _, id := range asked {
			m.Live.Revive(id)
		}
		return nil, err
	}
	for _, p := range r.Dropped {
		m.Live.Dead(p)
	}
	for _, g := range r.Generations {
		m.Retired(g.ID)
	}
	changed := make([]pages.ID, 0, len(r.Changed))
	for _, p := range r.Changed {
		changed = append(changed, p.ID)
	}
	if len(changed) > 0 {
		m.Changed(changed)
	}
	return r.Generations, nil
}

// releaseReservedLocked gives back all that the draft has reserved.
func (d *Draft) releaseReservedLocked() {
	for i := range d.mu.slots {
		if d.mu.slots[i].reserved {
			d.unreserveLocked(i)
		}
	}
}
