package staging

import (
	"encoding/json"
	"syscall"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

// Plan is what plan.json says.
type Plan struct {
	Generation string    `json:"generation"`
	Published  bool      `json:"published"`
	Missing    []Missing `json:"missing"`
}

// Missing is a page that still has to be written.
type Missing struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// PlanJSON makes plan.json as of now. Pages that have come to exist meanwhile
// are linked by it. ENOENT until the manifest is accepted.
func (d *Draft) PlanJSON() ([]byte, error) {
	d.accept.Lock()
	defer d.accept.Unlock()
	d.mu.Lock()
	c := d.mu.content
	d.mu.Unlock()
	if c == nil {
		return nil, syscall.ENOENT
	}
	plan := Plan{Generation: c.derived.Name, Missing: []Missing{}}
	if plan.Published = d.Identity.Generation(c.derived.Name) != nil; !plan.Published {
		if err := d.linkAbsent(); err != nil {
			return nil, err
		}
		incomplete, err := d.incomplete()
		if err != nil {
			return nil, err
		}
		for _, s := range incomplete {
			_, g, _ := c.layout.At(s)
			plan.Missing = append(plan.Missing, Missing{SlotPath(c.layout, s), c.layout.Groups[g].PageBytes})
		}
	}
	b, err := json.Marshal(plan)
	return append(b, '\n'), err
}

// linkAbsent links what exists by now for all slots that have no page, or only
// one that was abandoned.
func (d *Draft) linkAbsent() error {
	d.mu.Lock()
	all := make([]int, len(d.mu.slots))
	d.mu.Unlock()
	for i := range all {
		all[i] = i
	}
	if err := d.dropAbandoned(all); err != nil {
		return err
	}
	return d.linkMissing(d.missingSlots())
}

// missingSlots lists the slots that have no page at all.
func (d *Draft) missingSlots() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var slots []int
	for i := range d.mu.slots {
		if d.mu.slots[i].page.ID == 0 {
			slots = append(slots, i)
		}
	}
	return slots
}

// incomplete lists the slots whose page is missing or not complete.
func (d *Draft) incomplete() ([]int, error) {
	var slots []int
	for i, ref := range d.pageRefs() {
		complete := ref.ID != 0
		if complete && ref.Staged() {
			state, err := d.m.inspect(ref.staged)
			if err != nil {
				return nil, err
			}
			complete = state == pageComplete
		}
		if !complete {
			slots = append(slots, i)
		}
	}
	return slots, nil
}

func (d *Draft) pageRefs() []PageRef {
	d.mu.Lock()
	defer d.mu.Unlock()
	refs := make([]PageRef, len(d.mu.slots))
	for i := range d.mu.slots {
		refs[i] = d.mu.slots[i].page
	}
	return refs
}

// linkMissing links, for the given slots, the pages that exist by now: a
// generation's, or one that another staging has completed. Their reservations
// are given back.
func (d *Draft) linkMissing(slots []int) error {
	d.mu.Lock()
	c := d.mu.content
	d.mu.Unlock()
	if len(slots) == 0 || c == nil {
		return nil
	}
	found, err := d.m.findPages(c, slots)
	if err != nil {
		return err
	}
	d.mu.Lock()
	var links []link
	var unused []PageRef
	for _, f := range found {
		if d.mu.gone || d.mu.publishing || d.mu.slots[f.Slot].page.ID != 0 {
			unused = append(unused, PageRef{f.ID, f.Page})
			continue
		}
		links = append(links, f)
	}
	if len(links) > 0 {
		if err = d.journal.append(record{Do: doLink, Links: links}); err != nil {
			for _, f := range links {
				unused = append(unused, PageRef{f.ID, f.Page})
			}
			links = nil
		}
	}
	for _, f := range links {
		d.applyLinkLocked(f)
	}
	d.mu.Unlock()
	d.m.unref(unused)
	d.m.linked(links)
	return err
}

// linked tells the kernel of the link counts of published pages that a staging
// has linked.
func (m *Manager) linked(links []link) {
	var ids []pages.ID
	for _, f := range links {
		if f.Page == nil {
			ids = append(ids, f.ID)
		}
	}
	if len(ids) > 0 {
		m.Changed(ids)
	}
}

// applyLinkLocked puts a page that exists, and that is held for the staging
// already, at its position.
func (d *Draft) applyLinkLocked(f link) {
	s := &d.mu.slots[f.Slot]
	s.page = PageRef{f.ID, f.Page}
	if s.reserved {
		_, g, _ := d.mu.content.layout.At(f.Slot)
		d.m.Budget.Unreserve(evict.Charge(d.mu.content.layout.Groups[g].PageBytes))
		s.reserved = false
	}
}

// findPages looks for existing pages with the keys of the slots and holds them.
func (m *Manager) findPages(c *content, slots []int) ([]link, error) {
	keys := make([]pages.Key, len(slots))
	for i, s := range slots {
		keys[i] = c.derived.Keys[s]
	}
	rows, err := m.Index.PagesByKey(keys)
	if err != nil {
		return nil, err
	}
	var found []link
	for i, s := range slots {
		if p := rows[i]; p != nil && m.hold(p.ID, p.Bytes) {
			found = append(found, link{Slot: s, ID: p.ID})
			continue
		}
		for _, sp := range m.stagedByKey(keys[i]) {
			if state, err := m.inspect(sp); err != nil || state != pageComplete {
				continue
			}
			if m.Live.RefStaged(sp.ID) {
				found = append(found, link{Slot: s, ID: sp.ID, Page: sp})
				break
			}
		}
	}
	return found, nil
}

// hold has a staging hold a page that had a row when it was looked for. False if it
// has gone since. A row that is there when the page is held stays.
func (m *Manager) hold(id pages.ID, bytes int64) bool {
	if !m.Live.Ref(id, bytes) {
		return false
	}
	if _, err := m.Index.Page(id); err != nil {
		m.unref([]PageRef{{ID: id}})
		return false
	}
	return true
}

// LinkPage is link(2): it puts an existing page with the position's content key
// there. EEXIST if a page is there, EPERM if the keys differ.
func (d *Draft) LinkPage(p Place, name string, id pages.ID, op index.Op) error {
	slot, _, err := d.wantPage(p, name)
	if err != nil {
		return err
	}
	d.mu.Lock()
	want, there := d.mu.content.derived.Keys[slot], d.mu.slots[slot].page.ID != 0
	d.mu.Unlock()
	if there {
		return syscall.EEXIST
	}
	f := link{Slot: slot, ID: id}
	key, bytes, err := d.m.keyOf(&f)
	if err != nil {
		return err
	}
	if key != want {
		return refuse(syscall.EPERM, "the page has another content key than this position")
	}
	if f.Page != nil && !d.m.Live.RefStaged(id) || f.Page == nil && !d.m.hold(id, bytes) {
		return syscall.ENOENT
	}
	d.mu.Lock()
	if err = d.usableLocked(); err == nil && d.mu.slots[slot].page.ID != 0 {
		err = syscall.EEXIST
	}
	if err == nil {
		err = d.journal.append(record{Do: doLink, Op: op, Links: []link{f}})
	}
	if err == nil {
		d.applyLinkLocked(f)
		d.touchLocked()
	}
	d.mu.Unlock()
	if err != nil {
		d.m.unref([]PageRef{{f.ID, f.Page}})
	}
	return err
}

// keyOf finds the key and size of a page that link(2) names. A staged page must
// be complete.
func (m *Manager) keyOf(f *link) (pages.Key, int64, error) {
	if ref, ok := m.StagedPage(f.ID); ok {
		state, err := m.inspect(ref.staged)
		if err == nil && state != pageComplete {
			err = refuse(syscall.EPERM, "the page is not complete")
		}
		f.Page = ref.staged
		return ref.staged.Key, ref.staged.Bytes, err
	}
	row, err := m.Index.Page(f.ID)
	if err != nil {
		return pages.Key{}, 0, err
	}
	return row.Key, row.Bytes, nil
}
