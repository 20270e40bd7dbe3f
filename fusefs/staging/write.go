package staging

import (
	"context"
	"os"
	"syscall"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

// Owner is who makes a file, and the mode it asks for.
type Owner struct {
	UID, GID, Mode uint32
	TID            uint32 // the thread that asks
}

// CreatePage makes the page at a position and opens it for writing. EEXIST if
// it is there, found by its content key included. EPERM where the manifest has
// no such page. The caller tells Manager.Opened when it has a handle on the page.
func (d *Draft) CreatePage(ctx context.Context, p Place, name string, o Owner, op index.Op) (pages.ID, *os.File, error) {
	slot, g, err := d.wantPage(p, name)
	if err != nil {
		return 0, nil, err
	}
	if err := d.dropAbandoned([]int{slot}); err != nil {
		return 0, nil, err
	}
	if err := d.linkMissing([]int{slot}); err != nil {
		return 0, nil, err
	}
	if err := d.reserveSlot(ctx, slot, g.PageBytes); err != nil {
		return 0, nil, err
	}
	sp := &stagedPage{ID: pages.ID(d.m.Index.NextID()), Key: d.mu.content.derived.Keys[slot], Bytes: g.PageBytes}
	sp.making.Store(true)
	f, err := d.m.createFile(sp, o)
	if err != nil {
		return 0, nil, err
	}
	if err := d.takeSlot(slot, sp, o.TID, op); err != nil {
		f.Close()
		d.m.ram.Remove(sp.ID)
		return 0, nil, err
	}
	return sp.ID, f, nil
}

// wantPage finds the slot that a page may be made for.
func (d *Draft) wantPage(p Place, name string) (int, *index.Group, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return 0, nil, err
	}
	if d.mu.content == nil || !d.mu.hasFile {
		return 0, nil, refuse(syscall.EPERM, "the manifest comes first: write tokens and manifest.json, then pages")
	}
	p = d.resolveLocked(p)
	if !d.existsLocked(p) {
		return 0, nil, syscall.ENOENT
	}
	slot, _, ok := d.slotLocked(p, name)
	if !ok || d.mu.ghost {
		return 0, nil, refuse(syscall.EPERM, "the manifest has no page %q here", name)
	}
	return slot, &d.mu.content.layout.Groups[p.Group], nil
}

// reserveSlot takes bytes for a page whose reservation is gone (it was unlinked
// before).
func (d *Draft) reserveSlot(ctx context.Context, slot int, pageBytes int64) error {
	d.mu.Lock()
	reserved, there := d.mu.slots[slot].reserved, d.mu.slots[slot].page.ID != 0
	d.mu.Unlock()
	if there {
		return syscall.EEXIST
	}
	if reserved {
		return nil
	}
	if err := d.m.reserve(ctx, evict.Charge(pageBytes)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.mu.slots[slot].page.ID != 0: // linked meanwhile
		d.m.Budget.Unreserve(evict.Charge(pageBytes))
		return syscall.EEXIST
	case d.mu.slots[slot].reserved || d.mu.gone:
		d.m.Budget.Unreserve(evict.Charge(pageBytes))
		return nil
	}
	d.mu.slots[slot].reserved = true
	return nil
}

// reserve waits a bounded time for bytes in the RAM tier.
func (m *Manager) reserve(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, m.AdmissionTimeout)
	defer cancel()
	began := m.Now()
	err := m.Budget.Reserve(ctx, n, m.AskRoom)
	if m.Waited != nil {
		m.Waited(m.Now().Sub(began))
	}
	return err
}

// createFile makes a staged page's file with its owner.
func (m *Manager) createFile(sp *stagedPage, o Owner) (*os.File, error) {
	f, err := m.ram.Create(sp.ID, sp.Bytes)
	if err != nil {
		return nil, err
	}
	// Without the privilege to give files away every file is the daemon's own.
	if os.Geteuid() == 0 {
		err = f.Chown(int(o.UID), int(o.GID))
	}
	if err == nil {
		err = f.Chmod(os.FileMode(o.Mode & 0o777))
	}
	if err != nil {
		f.Close()
		m.ram.Remove(sp.ID)
		return nil, err
	}
	return f, nil
}

// takeSlot puts a page that has just been made at its position.
func (d *Draft) takeSlot(slot int, sp *stagedPage, tid uint32, op index.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return err
	}
	if d.mu.slots[slot].page.ID != 0 {
		return syscall.EEXIST
	}
	if err := d.journal.append(record{Do: doPage, Op: op, Slot: slot, Page: sp, TID: tid}); err != nil {
		return err
	}
	d.applyPageLocked(slot, sp)
	d.touchLocked()
	return nil
}

func (d *Draft) applyPageLocked(slot int, sp *stagedPage) {
	if d.mu.slots[slot].reserved {
		d.m.Budget.Fill(evict.Charge(sp.Bytes))
		d.mu.slots[slot].reserved = false
	} else {
		d.m.Budget.Hold(evict.Charge(sp.Bytes))
	}
	sp.owner = d
	d.mu.slots[slot].page = PageRef{sp.ID, sp}
	d.m.Live.Stage(sp.ID, sp.Bytes)
	d.m.addStaged(sp)
}

// CreateScratch makes a file with a name that begins with a dot, in the root or,
// once the manifest is there, in a group's directory.
func (d *Draft) CreateScratch(p Place, name string, o Owner, op index.Op) (pages.ID, *os.File, error) {
	d.mu.Lock()
	p = d.resolveLocked(p)
	err := d.usableLocked()
	switch {
	case err != nil:
	case !d.existsLocked(p):
		err = syscall.ENOENT
	case d.mu.ghost, p.Level == LevelRank:
		err = refuse(syscall.EPERM, "no file may be made here")
	case p.Level != LevelRoot && d.mu.content == nil:
		err = refuse(syscall.EPERM, "the manifest comes first: write tokens and manifest.json, then pages")
	case p.Level == LevelProvisional:
		err = refuse(syscall.EPERM, "the manifest has no such page group")
	}
	if _, there := d.scratchEntryLocked(p, name); err == nil && there {
		err = syscall.EEXIST
	}
	d.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	sp := &stagedPage{ID: pages.ID(d.m.Index.NextID()), Place: p, Name: []byte(name)}
	f, err := d.m.createFile(sp, o)
	if err != nil {
		return 0, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err = d.usableLocked(); err == nil {
		err = d.journal.append(record{Do: doScratch, Op: op, Page: sp})
	}
	if err != nil {
		f.Close()
		d.m.ram.Remove(sp.ID)
		return 0, nil, err
	}
	d.applyScratchLocked(sp)
	d.touchLocked()
	return sp.ID, f, nil
}

func (d *Draft) applyScratchLocked(sp *stagedPage) {
	sp.owner = d
	d.mu.scratch[sp.ID] = sp
	d.m.Live.Stage(sp.ID, 0)
	d.m.addStaged(sp)
}

// Unlink removes a page or a scratch file from the staging. The page itself
// goes only if nothing else has it.
func (d *Draft) Unlink(p Place, name string, op index.Op) error {
	d.mu.Lock()
	if err := d.usableLocked(); err != nil {
		d.mu.Unlock()
		return err
	}
	p = d.resolveLocked(p)
	if !d.existsLocked(p) {
		d.mu.Unlock()
		return syscall.ENOENT
	}
	if e, ok := d.scratchEntryLocked(p, name); ok {
		err := d.journal.append(record{Do: doUnscratch, Op: op, Page: e.Page.staged})
		if err == nil {
			delete(d.mu.scratch, e.Page.ID)
			d.touchLocked()
		}
		d.mu.Unlock()
		if err == nil {
			d.m.unref([]PageRef{e.Page})
		}
		return err
	}
	slot, _, ok := d.slotLocked(p, name)
	if !ok || d.mu.slots[slot].page.ID == 0 {
		d.mu.Unlock()
		return syscall.ENOENT
	}
	ref := d.mu.slots[slot].page
	err := d.journal.append(record{Do: doDrop, Op: op, Slot: slot})
	if err == nil {
		d.mu.slots[slot].page = PageRef{}
		d.touchLocked()
	}
	d.mu.Unlock()
	if err == nil {
		d.m.unref([]PageRef{ref})
	}
	return err
}

// unref lets the pages go and deletes the rows that only stagings kept.
func (m *Manager) unref(refs []PageRef) {
	var rows, kept []pages.ID
	for _, r := range refs {
		if r.ID == 0 {
			continue
		}
		last, dropRow := m.Live.Unref(r.ID)
		if dropRow {
			rows = append(rows, r.ID)
		}
		switch {
		case last && r.staged != nil:
			m.dropStaged(r.staged)
		case r.staged == nil:
			kept = append(kept, r.ID)
		}
	}
	if len(kept) > 0 {
		m.Changed(kept)
	}
	if len(rows) == 0 {
		return
	}
	dropped, err := m.Index.DropPages(rows)
	if err != nil {
		// The rows go at the next start; until then they cost their storage.
		m.Log.Warn("pages that nothing needs stay for now", "pages", len(rows), "error", err)
		for _, id := range rows {
			m.Live.Revive(id)
		}
		return
	}
	gone := make(map[pages.ID]bool, len(dropped))
	for _, p := range dropped {
		gone[p.ID] = true
		m.Live.Dead(p)
	}
	for _, id := range rows {
		if !gone[id] {
			m.Live.Revive(id) // a generation has it after all
		}
	}
}
