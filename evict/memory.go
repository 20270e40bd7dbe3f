package evict

import (
	"unsafe"

	"ckptfs/evict/retention"
)

// PolicyStats tells what retention holds: the policy, the hints and the state of
// what is in RAM. All of it is bounded: by --max-generations, by maxHints, by
// the pages that fit in RAM.
func (t *Tiers) PolicyStats() retention.Stats {
	t.lockPolicy()
	s := t.policy.Stats()
	t.policy.Unlock()
	s.Bytes += int64(t.hints.len())*hintBytes + int64(t.res.count())*residentBytes
	return s
}

// Estimates of what an entry takes, the tables that it is in included.
const (
	mapEntryBytes = 16 // of a map, beyond key and value

	// A hint is in the table by page; its home, and where that moved, are in two
	// others, which are smaller.
	hintBytes = 8 + int64(unsafe.Sizeof(hint{})) + mapEntryBytes + 2*(8+8+mapEntryBytes)
	// A page in RAM is in the table by page and in the list of its home.
	residentBytes = int64(unsafe.Sizeof(resident{})) + 8 + 8 + mapEntryBytes
)
