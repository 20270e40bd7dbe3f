package evict

import (
	"fmt"

	"ckptfs/index"
	"ckptfs/pages"
)

// adoptBatch is how many page rows are read at a time.
const adoptBatch = 4096

// AdoptRAM takes up the page files of a former daemon: those of published pages
// are entered and charged, others are left to decide. It looks at the pages in
// RAM and at those that are nowhere else, not at the whole store. lost are
// published pages that have no copy.
func (t *Tiers) AdoptRAM(other func(pages.ID, pages.Stat) error) (lost []pages.ID, err error) {
	if err := t.adoptKept(); err != nil {
		return nil, fmt.Errorf("RAM tier: %w", err)
	}
	stats := map[pages.ID]pages.Stat{}
	if err := t.RAM.Each(func(id pages.ID, st pages.Stat) error { stats[id] = st; return nil }); err != nil {
		return nil, fmt.Errorf("RAM tier: %w", err)
	}
	ids := make([]pages.ID, 0, len(stats))
	for id := range stats {
		ids = append(ids, id)
	}
	for len(ids) > 0 {
		n := min(len(ids), adoptBatch)
		rows, err := t.Index.Pages(ids[:n])
		if err != nil {
			return nil, err
		}
		for i, p := range rows {
			if p == nil {
				err = other(ids[i], stats[ids[i]])
			} else {
				err = t.adoptPage(p, stats[p.ID])
			}
			if err != nil {
				return nil, err
			}
		}
		ids = ids[n:]
	}
	only, err := t.Index.RAMOnlyPages()
	if err != nil {
		return nil, err
	}
	for _, id := range only {
		if _, there := stats[id]; !there {
			lost = append(lost, id)
		}
	}
	return lost, nil
}

// adoptPage enters a published page that is in RAM.
func (t *Tiers) adoptPage(p *index.Page, st pages.Stat) error {
	if st.Bytes != p.Bytes {
		// Never seen; a page file is complete before its row is there.
		t.Log.Error("a page file has the wrong size", "page", uint64(p.ID), "bytes", st.Bytes, "want", p.Bytes)
		_, err := t.RAM.Remove(p.ID)
		return err
	}
	t.Budget.Hold(Charge(p.Bytes))
	t.res.add(p, 0, false)
	return nil
}

// Confirm asks the disk for pages that no record says to be there; those that it
// has are recorded. It returns those whose absence the disk confirms, and how
// many it could not tell of.
func (t *Tiers) Confirm(ids []pages.ID) (absent []*index.Page, unsure int, err error) {
	rows, err := t.Index.Pages(ids)
	if err != nil {
		return nil, 0, err
	}
	var found []written
	for _, p := range rows {
		if p == nil {
			continue
		}
		switch stored, err := t.onDiskBytes(p.Key); {
		case err != nil:
			unsure++
		case stored > 0:
			found = append(found, written{p, stored})
		default:
			absent = append(absent, p)
		}
	}
	if len(found) > 0 {
		t.record(found)
	}
	return absent, unsure, nil
}

// onDiskBytes looks for an object: what it takes, 0 if the disk confirms that it
// is not there.
func (t *Tiers) onDiskBytes(k pages.Key) (int64, error) {
	return objectBytes(t.Disk, k)
}
