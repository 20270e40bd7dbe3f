package evict

import (
	"errors"

	"ckptfs/index"
	"ckptfs/pages"
)

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

// followBad takes up which objects were found bad: a page that is in RAM is only
// there now, any other is lost, if nobody is just finding that out.
func (t *Tiers) followBad() {
	if t.Disk == nil {
		return
	}
	for _, k := range t.Disk.TakeBad() {
		p, there, err := t.Index.PageByKey(k)
		if err == nil && there {
			there, err = t.Disk.Has(k)
			if err == nil && there {
				continue // written again
			}
			_, err = t.setDisk([]index.DiskChange{{ID: p.ID}})
		}
		if err != nil {
			t.Log.Warn("what is recorded of a bad object could not be corrected", "key", k, "error", err)
		}
		if p == nil || t.InRAM(p.ID) || t.hasFile(p.ID) || t.loads.has(p.ID) {
			continue
		}
		if absent, _, err := t.Confirm([]pages.ID{p.ID}); err == nil && len(absent) > 0 {
			_ = t.lost(p, errors.New("its object is bad"))
		}
	}
}
