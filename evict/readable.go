package evict

import (
	"errors"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// confirmTime bounds how long a lookup asks the disk whether pages are really
// there; after that the records are believed.
const confirmTime = 200 * time.Millisecond

// NotInRAM lists the slots of the pages that are not known to be in RAM.
func (t *Tiers) NotInRAM(ids []pages.ID) (slots []int) {
	for slot, id := range ids {
		if !t.InRAM(id) {
			slots = append(slots, slot)
		}
	}
	return slots
}

// Readable reports whether every page can be read, and counts those in RAM and
// those only on disk. A page without any copy is lost: the generations that need
// it are retired. Trouble with the disk makes a page unreadable now, no more.
func (t *Tiers) Readable(rows []*index.Page) (ram, disk int, ok bool) {
	deadline := time.Now().Add(confirmTime)
	for _, p := range rows {
		if p == nil {
			return 0, 0, false // retired in this instant
		}
		if t.InRAM(p.ID) || t.hasFile(p.ID) {
			ram++
			continue
		}
		if p.Disk() != 0 && time.Now().After(deadline) {
			disk++
			continue
		}
		stored, err := t.onDiskBytes(p.Key)
		switch {
		case err != nil:
			t.Log.Warn("a page cannot be reached now", "key", p.Key, "error", err)
			return 0, 0, false
		case stored == 0 && !t.hasFile(p.ID):
			_ = t.lost(p, errors.New("neither tier has it"))
			return 0, 0, false
		case stored == 0:
			ram++
		default:
			if p.Disk() == 0 {
				t.record([]written{{p, stored}})
			}
			disk++
		}
	}
	return ram, disk, true
}
