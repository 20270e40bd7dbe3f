package evict

import (
	"context"

	"ckptfs/pages"
)

// Check is the function of that name for a store that is being served but at
// rest, and compares what is in memory too: who is in RAM, and the accounting.
func (t *Tiers) Check(ctx context.Context, staged func(pages.ID) bool) ([]Finding, error) {
	findings, err := Check(ctx, Store{Index: t.Index, RAM: t.RAM, Disk: t.Disk, Staged: staged})
	if err != nil {
		return findings, err
	}
	c := checker{Store: Store{Staged: staged}, findings: findings}
	held := t.KeptBytes()
	there := map[pages.ID]bool{}
	err = t.RAM.Each(func(id pages.ID, _ pages.Stat) error {
		there[id] = true
		p, err := t.Index.Page(id)
		if err != nil {
			return nil // a staging's
		}
		held += Charge(p.Bytes)
		if !t.InRAM(id) {
			c.found(FindRAM, "page %d is in RAM, the tiers do not know it", id)
		} else if t.res.mistakesDisk(p) {
			c.found(FindRecord, "the tiers mistake whether page %d, which takes %d bytes on disk, is only in RAM", id, p.Disk())
		}
		return nil
	})
	if err != nil {
		return c.findings, err
	}
	for i := range t.res.shards {
		s := &t.res.shards[i]
		s.Lock()
		for id := range s.pages {
			if !there[id] {
				c.found(FindRAM, "page %d is said to be in RAM, it is not", id)
			}
		}
		s.Unlock()
	}
	if got, _ := t.Budget.Usage(); staged == nil && got != held {
		c.found(FindBytes, "RAM: %d bytes are held, its pages take %d", got, held)
	}
	if t.Disk != nil {
		delta, err := t.Disk.Recount(ctx)
		if err == nil && delta != 0 {
			c.found(FindBytes, "disk: the sum of real bytes was wrong by %d", delta)
		}
	}
	return c.findings, err
}
