package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

// recover reads one staging back from its journal, or removes what is left of
// it: one that was never made whole, one that was published before its files
// could be removed, and with discard any.
func (m *Manager) recover(dir string, discard bool) error {
	j, rs, err := openJournal(dir)
	if errors.Is(err, fs.ErrNotExist) {
		j, rs, err = m.recoverRetired(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	published := m.Index.GenerationByID(rs[0].ID) != nil
	for _, r := range rs {
		// The journal says that publication was about to be; the index, that
		// it has been.
		if r.Op != 0 && (r.Do != doPublish || published) {
			m.done[r.Op] = true
		}
	}
	if published && !discard {
		m.noteLate(rs)
	}
	identity := m.Index.IdentityByID(rs[0].Identity)
	if discard || published || identity == nil || identity.Document() == nil {
		j.close()
		return removeDraftDir(dir)
	}
	d := newDraft(m, rs[0].ID, identity, string(rs[0].Name), rs[0].Ghost, *rs[0].Attr)
	d.journal = j
	for i := range rs[1:] {
		err := d.replay(&rs[1+i])
		if errors.Is(err, fs.ErrNotExist) { // it would be so at every start
			m.Log.Error("a staging is given up: a file that its journal tells of is gone", "identity", identity.Name, "staging", d.mu.name, "line", i+2, "error", err)
			return d.giveUp(dir)
		}
		if err != nil {
			return fmt.Errorf("journal line %d: %w", i+2, err)
		}
	}
	d.finishRemoval(&rs[len(rs)-1])
	d.mu.hasFile = exists(d.FilePath(EntryManifest))
	if d.mu.content != nil {
		os.Remove(d.FilePath(EntryTokens)) // a prompt is private: they stay until this and no longer
	}
	d.mu.hasTokens = exists(d.FilePath(EntryTokens))
	return m.enter(d)
}

// giveUp ends a staging of which a part has been replayed.
func (d *Draft) giveUp(dir string) error {
	for i, s := range d.mu.slots {
		if s.reserved {
			d.unreserveLocked(i)
		}
		d.replayDrop(s.page)
	}
	for _, sp := range d.mu.scratch {
		d.replayDrop(PageRef{sp.ID, sp})
	}
	d.journal.close()
	return removeDraftDir(dir)
}

// finishRemoval removes the file that the last journal line says was unlinked: the
// daemon may have been killed before it did so. An earlier line has been carried
// out, and the file may have been made anew since.
func (d *Draft) finishRemoval(last *record) {
	for _, t := range []EntryType{EntryManifest, EntryTokens} {
		if last.Do == doHide && last.File == filepath.Base(d.FilePath(t)) && exists(d.FilePath(t)) {
			d.removeFileLocked(t)
		}
	}
}

// Late is a staging that was published by a daemon which was killed before it
// could answer.
type Late struct {
	ID      index.ObjectID
	Name    string
	Workers []uint32 // threads that made pages in it
}

// noteLate remembers who worked in a staging that is published.
func (m *Manager) noteLate(rs []record) {
	l := Late{ID: rs[0].ID, Name: string(rs[0].Name)}
	for _, r := range rs {
		if r.TID != 0 {
			l.Workers = append(l.Workers, r.TID)
		}
	}
	m.Late = append(m.Late, l)
}

// recoverRetired takes up a ghost whose generation was retired, but whose
// journal had not got its name yet when the daemon was killed.
func (m *Manager) recoverRetired(dir string) (*journal, []record, error) {
	id, ok := parseDraftDir(filepath.Base(dir))
	if !ok || !exists(filepath.Join(dir, "ghost")) {
		return nil, nil, fs.ErrNotExist
	}
	if m.Index.GenerationByID(id) != nil {
		return nil, nil, fs.ErrNotExist
	}
	if err := os.Rename(filepath.Join(dir, "journal.tmp"), filepath.Join(dir, "journal")); err != nil {
		return nil, nil, err
	}
	return openJournal(dir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// replay applies one journal line. Nobody else knows the draft yet, so it takes
// no lock.
func (d *Draft) replay(r *record) error {
	switch r.Do {
	case doMkdir:
		d.applyMkdirLocked(*r.Place, string(r.Name))
	case doRmdir:
		d.applyRmdirLocked(*r.Place)
	case doManifest:
		return d.replayManifest()
	case doPage:
		if d.mu.slots[r.Slot].reserved {
			d.unreserveLocked(r.Slot)
		}
		d.mu.workers[r.TID] = true
		return d.replayMade(r.Slot, r.Page)
	case doLink:
		for _, f := range r.Links {
			if err := d.replayLink(f); err != nil {
				return err
			}
		}
	case doDrop:
		d.replayDrop(d.mu.slots[r.Slot].page)
		d.mu.slots[r.Slot] = slot{reserved: r.Reserve}
		if r.Reserve {
			_, g, _ := d.mu.content.layout.At(r.Slot)
			d.m.Budget.AdoptReserved(evict.Charge(d.mu.content.layout.Groups[g].PageBytes))
		}
	case doScratch:
		if old := d.mu.scratch[r.Page.ID]; old != nil {
			old.Place, old.Name = r.Page.Place, r.Page.Name
			return nil
		}
		return d.replayScratch(r.Page)
	case doUnscratch:
		delete(d.mu.scratch, r.Page.ID)
		d.replayDrop(PageRef{r.Page.ID, r.Page})
	case doPlaceAt:
		return d.replayPlaceAt(r.Slot, r.Page)
	case doAttr:
		d.applyAttrLocked(r.Sub, *r.Attr)
	case doError:
		d.mu.errorText = string(r.Name)
		d.mu.hidden[EntryError] = false
	case doHide:
		for t, name := range madeNames {
			d.mu.hidden[t] = d.mu.hidden[t] || name == r.File
		}
	}
	return nil
}

// replayStaged enters a page that this or another staging made, once.
func (d *Draft) replayStaged(sp *stagedPage) {
	if _, known := d.m.mu.byPage[sp.ID]; known {
		d.m.Live.Ref(sp.ID, sp.Bytes)
		return
	}
	d.m.Live.Stage(sp.ID, sp.Bytes)
	d.m.Budget.Hold(evict.Charge(sp.Bytes))
	d.m.addStaged(sp)
}

// replayPublished holds a page that the index has, whoever made it: another staging
// that has it too may have been published. False if the index does not have it.
func (d *Draft) replayPublished(id pages.ID) (bool, error) {
	row, err := d.m.Index.Page(id)
	if errors.Is(err, index.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.m.Live.Ref(id, row.Bytes)
	if row.Links() == 0 {
		d.m.Live.Keep(id) // its generations are gone, and stagings have kept the row
	}
	return true, nil
}

// replayMade puts a page at its position that this staging made.
func (d *Draft) replayMade(slot int, sp *stagedPage) error {
	published, err := d.replayPublished(sp.ID)
	if err != nil || published {
		d.mu.slots[slot].page = PageRef{ID: sp.ID}
		return err
	}
	d.replayStaged(sp)
	d.takeMade(slot, sp.ID)
	return nil
}

// takeMade puts a page at its position that is known and held: one of this staging,
// of which the link of another may have been read before.
func (d *Draft) takeMade(slot int, id pages.ID) {
	made := d.m.mu.byPage[id]
	made.owner = d
	d.mu.slots[slot].page = PageRef{id, made}
}

// replayScratch enters a scratch file. It may be a page by now that another staging
// has too, or that is published.
func (d *Draft) replayScratch(sp *stagedPage) error {
	published, err := d.replayPublished(sp.ID)
	if err != nil {
		return err
	}
	_, linked := d.m.mu.byPage[sp.ID]
	switch {
	case published:
	case linked:
		d.m.Live.RefStaged(sp.ID)
	default:
		d.applyScratchLocked(sp)
		return nil
	}
	sp.owner = d
	d.mu.scratch[sp.ID] = sp
	return nil
}

// replayPlaceAt turns a scratch file, which is held, into the page of a slot.
func (d *Draft) replayPlaceAt(slot int, placed *stagedPage) error {
	known := d.m.mu.byPage[placed.ID]
	if known != nil && known.Bytes == 0 {
		d.applyPlaceAtLocked(slot, placed)
		return nil
	}
	delete(d.mu.scratch, placed.ID)
	if d.mu.slots[slot].reserved {
		d.unreserveLocked(slot)
	}
	if known == nil { // it is published
		d.mu.slots[slot].page = PageRef{ID: placed.ID}
		return nil
	}
	d.takeMade(slot, placed.ID)
	return nil
}

func (d *Draft) replayLink(f link) error {
	if d.mu.slots[f.Slot].reserved {
		d.unreserveLocked(f.Slot)
	}
	published, err := d.replayPublished(f.ID)
	switch {
	case err != nil:
		return err
	case published:
		f.Page = nil
	case f.Page != nil:
		d.replayStaged(f.Page)
		f.Page = d.m.mu.byPage[f.ID]
	default:
		return nil // it was let go, as a later line says, and nothing had it any more
	}
	d.mu.slots[f.Slot].page = PageRef{f.ID, f.Page}
	return nil
}

func (d *Draft) unreserveLocked(slot int) {
	_, g, _ := d.mu.content.layout.At(slot)
	d.m.Budget.Unreserve(evict.Charge(d.mu.content.layout.Groups[g].PageBytes))
	d.mu.slots[slot].reserved = false
}

// replayDrop lets a page go when all journals have been read: one that is read
// later may say that its staging has the page too.
func (d *Draft) replayDrop(ref PageRef) {
	if ref.ID != 0 {
		d.m.dropped = append(d.m.dropped, ref)
	}
}

// replayManifest takes up an accepted manifest with its reservation, or a
// generation that was retired.
func (d *Draft) replayManifest() error {
	raw, err := os.ReadFile(d.FilePath(EntryManifest))
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = os.ReadFile(d.FilePath(EntryManifest) + removedSuffix)
	}
	if err != nil {
		return err
	}
	c := &content{derived: new(index.Derived)}
	if err := readGob(filepath.Join(d.m.draftDir(d.ID), "derived"), c.derived); err != nil {
		return err
	}
	if c.kin, err = d.readKin(); err != nil {
		return err
	}
	if c.manifest, err = index.ParseManifest(raw); err != nil {
		return err
	}
	c.layout = c.manifest.Layout(d.doc.WorldSize)
	d.mu.content = c
	d.mu.slots = make([]slot, c.layout.Total())
	d.journal.allow(len(d.mu.slots))
	var ghost ghostState
	switch err := readGob(filepath.Join(d.m.draftDir(d.ID), "ghost"), &ghost); {
	case err == nil:
		return d.replayGhost(ghost)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	var need int64
	for i := range d.mu.slots {
		_, g, _ := c.layout.At(i)
		need += evict.Charge(c.layout.Groups[g].PageBytes)
		d.mu.slots[i].reserved = true
	}
	d.m.Budget.AdoptReserved(need)
	return nil
}

func (d *Draft) replayGhost(ghost ghostState) error {
	for sub, a := range ghost.Subs {
		d.mu.sub[sub] = a
	}
	for i, id := range ghost.Pages {
		there, err := d.replayPublished(id)
		if err != nil {
			return err
		}
		if there {
			d.mu.slots[i].page = PageRef{ID: id}
		}
	}
	return nil
}
