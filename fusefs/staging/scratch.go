package staging

import (
	"context"
	"os"
	"syscall"

	"ckptfs/evict"
	"ckptfs/index"
)

// RenameScratch gives a scratch file its name: a position in a group, or
// manifest.json or tokens in the root, or another scratch name. Onto a page that
// is there it succeeds too, and the page that was there is kept.
func (d *Draft) RenameScratch(ctx context.Context, from Place, name string, to Place, newName string, noReplace bool, op index.Op) error {
	e, err := d.Lookup(from, name)
	if err != nil {
		return err
	}
	if e.Type != EntryScratch {
		return refuse(syscall.EPERM, "only scratch files, whose names begin with a dot, can be renamed in a staging")
	}
	sp := e.Page.staged
	d.mu.Lock()
	to = d.resolveLocked(to)
	d.mu.Unlock()
	switch {
	case isScratchName(newName):
		return d.renameToScratch(sp, to, newName, noReplace, op)
	case to.Level == LevelRoot && (newName == "manifest.json" || newName == "tokens"):
		return d.renameToFile(ctx, sp, newName, noReplace, op)
	}
	slot, g, err := d.wantPage(to, newName)
	if err != nil {
		return err
	}
	if err := d.dropBroken(slot, to, newName); err != nil {
		return err
	}
	return d.renameToPage(ctx, sp, slot, g.PageBytes, noReplace, op)
}

func (d *Draft) renameToScratch(sp *stagedPage, to Place, newName string, noReplace bool, op index.Op) error {
	if old, err := d.Lookup(to, newName); err == nil {
		if noReplace {
			return syscall.EEXIST
		}
		if old.Page.ID == sp.ID {
			return nil
		}
		if err := d.Unlink(to, newName, 0); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return err
	}
	moved := &stagedPage{ID: sp.ID, Place: to, Name: []byte(newName)}
	if err := d.journal.append(record{Do: doScratch, Op: op, Page: moved}); err != nil {
		return err
	}
	sp.Place, sp.Name = to, moved.Name
	d.touchLocked()
	return nil
}

// renameToFile moves a scratch file of the root to manifest.json, which is
// checked, or to tokens.
func (d *Draft) renameToFile(ctx context.Context, sp *stagedPage, newName string, noReplace bool, op index.Op) error {
	t := EntryManifest
	if newName == "tokens" {
		t = EntryTokens
	}
	// A second name first: if this is all that gets done, the scratch file is
	// still there and the rename is done again.
	if err := d.linkFile(sp, t, noReplace); err != nil {
		return err
	}
	if t == EntryManifest {
		if err := d.Accept(ctx); err != nil {
			d.mu.Lock()
			os.Remove(d.FilePath(t))
			d.mu.hasFile = false
			d.mu.Unlock()
			return err
		}
	}
	d.mu.Lock()
	err := d.journal.append(record{Do: doUnscratch, Op: op, Page: sp})
	if err == nil {
		delete(d.mu.scratch, sp.ID)
		d.touchLocked()
	}
	d.mu.Unlock()
	if err == nil {
		d.m.unref([]PageRef{{sp.ID, sp}})
	}
	return err
}

// linkFile gives a scratch file's content the name of a file of the root.
func (d *Draft) linkFile(sp *stagedPage, t EntryType, noReplace bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return err
	}
	has := &d.mu.hasFile
	if t == EntryTokens {
		has = &d.mu.hasTokens
	}
	path := d.FilePath(t)
	if d.mu.content != nil {
		if t == EntryManifest && sameFile(path, d.m.ram.Path(sp.ID)) {
			return nil // a rename that a killed daemon had all but done
		}
		return refuse(syscall.EROFS, "the manifest was accepted already")
	}
	if noReplace && *has {
		return syscall.EEXIST
	}
	os.Remove(path)
	if err := os.Link(d.m.ram.Path(sp.ID), path); err != nil {
		return err
	}
	*has = true
	return nil
}

func sameFile(a, b string) bool {
	sa, err := os.Stat(a)
	if err != nil {
		return false
	}
	sb, err := os.Stat(b)
	return err == nil && os.SameFile(sa, sb)
}

func (d *Draft) renameToPage(ctx context.Context, sp *stagedPage, slot int, pageBytes int64, noReplace bool, op index.Op) error {
	if err := d.linkMissing([]int{slot}); err != nil {
		return err
	}
	switch err := d.reserveSlot(ctx, slot, pageBytes); {
	case err == syscall.EEXIST:
		return d.discardScratch(sp, noReplace, op)
	case err != nil:
		return err
	}
	d.mu.Lock()
	if err := d.usableLocked(); err != nil {
		d.mu.Unlock()
		return err
	}
	if d.mu.slots[slot].page.ID != 0 {
		d.mu.Unlock()
		return d.discardScratch(sp, noReplace, op)
	}
	placed := &stagedPage{ID: sp.ID, Key: d.mu.content.derived.Keys[slot], Bytes: pageBytes}
	err := d.journal.append(record{Do: doPlaceAt, Op: op, Slot: slot, Page: placed})
	if err == nil {
		d.applyPlaceAtLocked(slot, placed)
		d.touchLocked()
	}
	d.mu.Unlock()
	return err
}

// dropBroken removes a page of the wrong size whose writer is gone, so that a
// scratch file can take its position.
func (d *Draft) dropBroken(slot int, p Place, name string) error {
	d.mu.Lock()
	ref := d.mu.slots[slot].page
	d.mu.Unlock()
	if ref.ID == 0 || !ref.Staged() {
		return nil
	}
	state, err := d.m.inspect(ref.staged)
	if err != nil || state == pageComplete || state == pageWritten {
		return err
	}
	return d.Unlink(p, name, 0)
}

// applyPlaceAtLocked turns a scratch file into the page of a slot.
func (d *Draft) applyPlaceAtLocked(slot int, placed *stagedPage) {
	placed.owner = d
	delete(d.mu.scratch, placed.ID)
	if d.mu.slots[slot].reserved {
		d.m.Budget.Fill(evict.Charge(placed.Bytes))
		d.mu.slots[slot].reserved = false
	} else {
		d.m.Budget.Hold(evict.Charge(placed.Bytes))
	}
	d.m.Live.Grow(placed.ID, placed.Bytes)
	d.mu.slots[slot].page = PageRef{placed.ID, placed}
	d.m.addStaged(placed)
}

// discardScratch ends a rename onto a page that is there: one copy is kept.
func (d *Draft) discardScratch(sp *stagedPage, noReplace bool, op index.Op) error {
	if noReplace {
		return syscall.EEXIST
	}
	return d.Unlink(sp.Place, string(sp.Name), op)
}
