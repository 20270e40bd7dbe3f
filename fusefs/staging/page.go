package staging

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"syscall"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

// stagedPage is a page file that a staging made and that no generation has yet.
// Several stagings may hold it: the one that wrote it and those that found it
// complete and linked it. Its owner, mode and mtime are those of its file.
type stagedPage struct {
	ID    pages.ID  `json:"id"`
	Key   pages.Key `json:"key"`   // zero: a scratch file
	Bytes int64     `json:"bytes"` // page_bytes; 0: a scratch file
	// A scratch file's place and name until it gets its position.
	Place Place  `json:"place"`
	Name  []byte `json:"name,omitempty"`

	owner *Draft // the staging that made it

	// making: whoever made the page has no handle on it yet.
	making atomic.Bool

	// sealed has the file's owner and mtime from when it was seen complete; no
	// writer is let in any more. nil: not seen yet.
	sealed    atomic.Pointer[index.Attr]
	attrSet   atomic.Bool // owner or mtime may have been set by somebody: only the file knows
	published atomic.Bool // a generation has it now
}

// PageRef names a page of a staging.
type PageRef struct {
	ID     pages.ID
	staged *stagedPage // nil: published
}

// Staged reports whether no generation has the page yet.
func (r PageRef) Staged() bool { return r.staged != nil && !r.staged.published.Load() }

// Scratch reports whether this is a scratch file.
func (r PageRef) Scratch() bool { return r.staged != nil && r.staged.Bytes == 0 }

// Sealed reports whether the page takes no writer any more.
func (r PageRef) Sealed() bool { return r.staged == nil || r.staged.sealed.Load() != nil }

// Final reports whether size and bytes stay as they are: the page is complete or
// published. A scratch file's do not, whatever its size.
func (r PageRef) Final() bool { return r.Sealed() && !r.Scratch() }

// AttrSet tells that somebody is about to set the owner or mtime of a staged
// page's file.
func (r PageRef) AttrSet() { r.staged.attrSet.Store(true) }

// pageState is what a look at a staged page's file gave.
type pageState uint8

const (
	pageComplete pageState = iota
	pageShort
	pageLong
	pageWritten // somebody still has it open or mapped for writing
	pageGone
)

// Opened tells that the maker of a page has a handle on it now, or never will.
func (m *Manager) Opened(id pages.ID) {
	if r, ok := m.StagedPage(id); ok {
		r.staged.making.Store(false)
	}
}

// inspect looks at a staged page's file: complete is its exact size and no
// writer and no writable mapping (contract section 3). What was complete once
// stays so, because it takes no writers any more.
func (m *Manager) inspect(p *stagedPage) (pageState, error) {
	if p.sealed.Load() != nil || p.published.Load() {
		return pageComplete, nil
	}
	// Handles first: one that is on its way out is waited for.
	writing := m.writers.Writing(p.ID)
	sealing := m.sealing.Of(p.ID)
	sealing.Lock()
	defer sealing.Unlock()
	st, busy, err := m.ram.Settled(p.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return pageGone, nil
	case errors.Is(err, pages.ErrNoLeases):
		// The handles are all there is to ask, and one may have come since.
		writing = writing || m.writers.Writing(p.ID)
	case err != nil:
		return 0, err
	}
	switch {
	case st.Bytes > p.Bytes:
		return pageLong, nil
	case writing, busy:
		return pageWritten, nil
	case st.Bytes < p.Bytes:
		return pageShort, nil
	}
	p.sealed.Store(publishedAttr(st))
	return pageComplete, nil
}

// Truncate sets the size of a page that has no generation yet. EROFS if it is
// complete.
func (m *Manager) Truncate(id pages.ID, bytes int64) error {
	sealing := m.sealing.Of(id)
	sealing.Lock()
	defer sealing.Unlock()
	if r, _ := m.StagedPage(id); r.Final() {
		return syscall.EROFS
	}
	return m.ram.Truncate(id, bytes)
}

// publishedAttr is what a page's file says of its attributes: published pages
// are 0444 whatever it was.
func publishedAttr(st pages.Stat) *index.Attr {
	return &index.Attr{Mode: 0o444, UID: st.UID, GID: st.GID, Mtime: st.Mtime}
}

// Settle looks at a staged page whose writer has just gone, so that whoever
// publishes finds it complete and need not look.
func (m *Manager) Settle(id pages.ID) {
	if m.settle(id) {
		id = 0
	}
	// The kernel may tell of a release before it has let go of the file itself.
	// So a page that still seems to be written is looked at once more, at the
	// next release.
	if last := pages.ID(m.unsettled.Swap(uint64(id))); last != 0 {
		m.settle(last)
	}
}

// settle reports whether the page need not be looked at again soon.
func (m *Manager) settle(id pages.ID) bool {
	r, ok := m.StagedPage(id)
	if !ok || r.Scratch() {
		return true
	}
	state, err := m.inspect(r.staged) // what it says now, it says to publication
	return err != nil || state != pageWritten
}

// abandoned reports whether a staged page is too short and nobody has it open or
// mapped for writing: its writer died. It is as good as absent.
//
// The order matters: the maker's handle is seen as long as there is one, and what
// is looked at last is what it has left. The file alone does not tell, for between
// the daemon's descriptor and the client's there is none.
func (m *Manager) abandoned(r PageRef) bool {
	if !r.Staged() || r.Scratch() || r.Sealed() || r.staged.making.Load() || m.Live.IsOpen(r.ID) {
		return false
	}
	state, err := m.inspect(r.staged)
	return err == nil && state == pageShort
}

// dropAbandoned empties the slots, of those given, whose page is abandoned. What
// was reserved for them is reserved again.
func (d *Draft) dropAbandoned(slots []int) error {
	for _, slot := range slots {
		d.mu.Lock()
		ref := d.mu.slots[slot].page
		d.mu.Unlock()
		if ref.ID == 0 || !d.m.abandoned(ref) {
			continue
		}
		d.mu.Lock()
		if err := d.usableLocked(); err != nil {
			d.mu.Unlock()
			return err
		}
		// It may have been taken up since it was looked at.
		if d.mu.slots[slot].page.ID != ref.ID || !d.m.Live.Abandon(ref.ID) {
			d.mu.Unlock()
			continue
		}
		err := d.journal.append(record{Do: doDrop, Slot: slot, Reserve: true})
		if err != nil {
			d.m.Live.Reclaim(ref.ID)
		} else {
			d.mu.slots[slot].page, d.mu.slots[slot].reserved = PageRef{}, true
			d.m.Budget.AdoptReserved(evict.Charge(ref.staged.Bytes))
		}
		d.mu.Unlock()
		if err != nil {
			return err
		}
		d.m.unref([]PageRef{ref})
	}
	return nil
}

// Writable reports whether a staged page may be opened for writing once more: it
// is not complete and nobody writes it.
func (m *Manager) Writable(r PageRef) (bool, error) {
	state, err := m.inspect(r.staged)
	return err == nil && (state == pageShort || state == pageLong), err
}
