package evict

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"ckptfs/index"
	"ckptfs/pages"
)

// Save makes published pages and the index durable: when it returns they survive
// a power loss. Pages without a disk copy are written, the others synced.
func (t *Tiers) Save(ctx context.Context, ps []*index.Page) error {
	if t.Disk == nil {
		return refuseDurable
	}
	var done []written
	defer func() {
		if len(done) > 0 {
			t.record(done)
		}
	}()
	for _, p := range ps {
		stored, err := t.savePage(ctx, p)
		if err != nil {
			return err
		}
		if stored > 0 {
			done = append(done, written{p, stored})
		}
	}
	if len(done) > 0 {
		t.record(done)
		done = nil
	}
	return t.Index.Sync()
}

// SaveGeneration is Save for all pages of a generation, and for what it is: its
// blob.
func (t *Tiers) SaveGeneration(ctx context.Context, g *index.Generation, ps []*index.Page) error {
	if err := t.Save(ctx, ps); err != nil || g.HasBlob() {
		return err
	}
	if _, err := t.saveBlob(ctx, g, true); err != nil {
		return err
	}
	return t.Index.Sync()
}

// refuseDurable: there is nothing that could survive a power loss.
var refuseDurable = fmt.Errorf("there is no disk tier: %w", syscall.EINVAL)

// savePage makes one page durable; stored is not 0 if it had no disk copy.
func (t *Tiers) savePage(ctx context.Context, p *index.Page) (stored int64, err error) {
	if p.Disk() != 0 {
		if err = t.Disk.Sync(p.Key); !errors.Is(err, pages.ErrAbsent) {
			return 0, err
		}
	}
	return t.put(ctx, p.ID, p.Key, p.Bytes)
}

// put writes a page that is in RAM, durably, and makes room for it once.
func (t *Tiers) put(ctx context.Context, id pages.ID, key pages.Key, bytes int64) (int64, error) {
	stored, err := t.store(ctx, id, key, bytes, storing{durable: true, room: true, count: &t.Counts.WrittenDurable}, 0)
	if errors.Is(err, errNotInRAM) {
		return 0, t.Disk.Sync(key) // evicted in this instant
	}
	return stored, err
}

// Unpublished is a complete page that no generation has yet.
type Unpublished struct {
	ID    pages.ID
	Key   pages.Key
	Bytes int64
}

// ahead are the pages that came to disk before their publication: their objects
// go with them if that fails. The lock is a leaf.
type ahead struct {
	mu sync.Mutex
	m  map[pages.ID]pages.Key
}

func (a *ahead) add(id pages.ID, key pages.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m == nil {
		a.m = map[pages.ID]pages.Key{}
	}
	a.m[id] = key
}

// take forgets a page: it is published, or gone.
func (a *ahead) take(id pages.ID) (key pages.Key, there bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, there = a.m[id]
	delete(a.m, id)
	return key, there
}

// SaveUnpublished writes pages that are about to be published, durably.
func (t *Tiers) SaveUnpublished(ctx context.Context, ps []Unpublished) error {
	for _, p := range ps {
		t.ahead.add(p.ID, p.Key)
		if _, err := t.put(ctx, p.ID, p.Key, p.Bytes); err != nil {
			return err
		}
	}
	return nil
}
