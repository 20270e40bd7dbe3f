package evict

import (
	"context"
	"sync"
	"time"

	"ckptfs/pages"
)

// kept are the pages that are gone and still mapped by somebody: their memory is
// taken until then, and counts as held. The lock is a leaf.
type kept struct {
	mu    sync.Mutex
	m     map[string]pages.Kept
	bytes int64
	some  chan struct{} // there may be some
}

func (k *kept) init() {
	k.m = map[string]pages.Kept{}
	k.some = make(chan struct{}, 1)
}

// A kept page is looked at soon, since most mappings end with their descriptor,
// and then less and less often.
const (
	firstLook = time.Millisecond
	lastLook  = time.Second
)

// removeCopy takes a page's storage in RAM away. What it was charged with is free
// again, at once or when nobody maps it any more.
func (t *Tiers) removeCopy(id pages.ID, charge int64) error {
	k, err := t.RAM.Remove(id)
	if err != nil {
		return err
	}
	if k.Name != "" {
		t.keep(k)
	}
	t.Budget.Free(charge)
	return nil
}

func (t *Tiers) keep(k pages.Kept) {
	t.Budget.Hold(k.Bytes)
	t.kept.mu.Lock()
	t.kept.m[k.Name] = k
	t.kept.bytes += k.Bytes
	t.kept.mu.Unlock()
	select {
	case t.kept.some <- struct{}{}:
	default:
	}
}

// adoptKept takes up what was kept by a former daemon.
func (t *Tiers) adoptKept() error {
	return t.RAM.EachKept(func(k pages.Kept) error { t.keep(k); return nil })
}

// KeptBytes is what pages take that are gone and still mapped.
func (t *Tiers) KeptBytes() int64 {
	t.kept.mu.Lock()
	defer t.kept.mu.Unlock()
	return t.kept.bytes
}

// keptLoop frees what is no longer mapped.
func (t *Tiers) keptLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.kept.some:
		}
		for wait := firstLook; t.releaseKept() > 0; wait = min(2*wait, lastLook) {
			select {
			case <-ctx.Done():
				return
			case <-t.kept.some:
				wait = firstLook
			case <-time.After(wait):
			}
		}
	}
}

// releaseKept looks at all that is kept and returns how much is left.
func (t *Tiers) releaseKept() (left int) {
	t.kept.mu.Lock()
	all := make([]pages.Kept, 0, len(t.kept.m))
	for _, k := range t.kept.m {
		all = append(all, k)
	}
	t.kept.mu.Unlock()
	for _, k := range all {
		gone, err := t.RAM.Release(k)
		if err != nil {
			t.Log.Warn("the memory of a page that is gone cannot be given back", "file", k.Name, "error", err)
		}
		if !gone {
			left++
			continue
		}
		t.kept.mu.Lock()
		delete(t.kept.m, k.Name)
		t.kept.bytes -= k.Bytes
		t.kept.mu.Unlock()
		t.Budget.Free(k.Bytes)
	}
	return left
}
