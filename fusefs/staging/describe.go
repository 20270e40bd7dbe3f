package staging

import (
	"path"

	"ckptfs/pages"
)

// PathOf is a directory's path in the staging, "" for the staging itself.
func (d *Draft) PathOf(p Place) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pathOfLocked(p)
}

func (d *Draft) pathOfLocked(p Place) string {
	p = d.resolveLocked(p)
	switch {
	case p.Level == LevelRoot:
		return ""
	case p.Level == LevelGroup && d.mu.content != nil && p.Group < len(d.mu.content.layout.Groups):
		return path.Join(RankName(p.Rank), d.mu.content.layout.Groups[p.Group].Name)
	case p.Level == LevelProvisional && p.Group < len(d.mu.provisional):
		return path.Join(RankName(p.Rank), d.mu.provisional[p.Group])
	}
	return RankName(p.Rank)
}

// PathOfPage is the path in the staging of a page that it has made, or of a
// scratch file; "" if it has none of that id any more.
func (d *Draft) PathOfPage(id pages.ID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sp := d.mu.scratch[id]; sp != nil {
		return path.Join(d.pathOfLocked(sp.Place), string(sp.Name))
	}
	for i := range d.mu.slots {
		if d.mu.slots[i].page.ID == id {
			return SlotPath(d.mu.content.layout, i)
		}
	}
	return ""
}

// Held reports whether somebody has something open in the staging, or it is being
// published.
func (d *Draft) Held() bool { return d.idleSince().IsZero() }

// PageBytes is the size of all pages of the staging, whether they are there yet
// or not; 0 before its manifest is accepted.
func (d *Draft) PageBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.content == nil {
		return 0
	}
	return d.mu.content.layout.Bytes()
}

// StagedBytes is the size of the pages that stagings have written and that no
// generation has yet, each counted once.
func (m *Manager) StagedBytes() (n int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, sp := range m.mu.byPage {
		n += sp.Bytes
	}
	return n
}

// PageBytes is the size that a page of a staging is to have; 0 for a scratch
// file, which does not know yet.
func (r PageRef) PageBytes() int64 {
	if r.staged == nil {
		return 0
	}
	return r.staged.Bytes
}
