package evict

import (
	"sync"
	"time"

	"ckptfs/evict/retention"
	"ckptfs/index"
)

// lookups are what the policy is still to be told of lookups, so that none waits
// for the policy's lock. The lock is a leaf.
type lookups struct {
	mu   sync.Mutex
	told []lookup
}

type lookup struct {
	at     time.Duration
	id     index.ObjectID
	missed bool
}

// maxLookups bounds what waits; what is more is not told.
const maxLookups = 1 << 14

// Hit tells that a lookup returned the generation.
func (t *Tiers) Hit(id index.ObjectID) { t.tell(lookup{at: t.now(), id: id}) }

// Missed tells that a lookup would have returned the retired generation. It
// concerns the policy only if it was the tiers that retired it.
func (t *Tiers) Missed(id index.ObjectID, why index.Reason) {
	switch why {
	case ReasonSuperseded, ReasonUnlikely, ReasonPressure, ReasonDiskFull:
		t.tell(lookup{at: t.now(), id: id, missed: true})
	}
}

func (t *Tiers) tell(l lookup) {
	t.lookups.mu.Lock()
	if len(t.lookups.told) < maxLookups {
		t.lookups.told = append(t.lookups.told, l)
	}
	t.lookups.mu.Unlock()
	if t.policy.TryLock() {
		t.hearLocked()
		t.policy.Unlock()
	}
}

// lockPolicy takes the policy's lock, and tells it first what lookups have left.
func (t *Tiers) lockPolicy() {
	t.policy.Lock()
	t.hearLocked()
}

func (t *Tiers) hearLocked() {
	t.lookups.mu.Lock()
	told := t.lookups.told
	t.lookups.told = nil
	t.lookups.mu.Unlock()
	for _, l := range told {
		if l.missed {
			t.policy.Missed(l.at, retention.ID(l.id))
		} else {
			t.policy.Hit(l.at, retention.ID(l.id))
		}
	}
}
