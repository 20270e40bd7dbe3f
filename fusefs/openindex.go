package fusefs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

// IndexName is the index in the state directory.
const IndexName = "index.db"

// openIndex opens the index. One that is of no use is kept aside, and a new one
// is made: openTiers fills it from the disk tier.
func (fs *FS) openIndex() error {
	path := filepath.Join(fs.cfg.StateDir, IndexName)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		fs.rebuild = "there was none"
	}
	idx, err := index.Open(path, fs.indexOptions())
	if errors.Is(err, index.ErrCorrupt) {
		return fs.replaceIndex(err.Error())
	}
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	fs.idx = idx
	return nil
}

func (fs *FS) indexOptions() index.Options {
	return index.Options{Logger: fs.log, ReservePath: filepath.Join(fs.cfg.StateDir, "reserve")}
}

// replaceIndex keeps the index's files aside and makes a new index.
func (fs *FS) replaceIndex(why string) error {
	if fs.idx != nil {
		fs.idx.Close()
		fs.idx = nil
	}
	path := filepath.Join(fs.cfg.StateDir, IndexName)
	aside, err := index.SetAside(path, fs.now())
	if err != nil {
		return fmt.Errorf("keep the unusable index aside: %w", err)
	}
	fs.log.Error("the index cannot be used; it is made anew from the disk tier", "kept_as", aside, "reason", why)
	fs.rebuild = why
	if fs.idx, err = index.Open(path, fs.indexOptions()); err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	return nil
}

// tierID is the disk tier that the index belongs to, "" if it has none yet.
func (fs *FS) tierID() (string, error) {
	id, _, err := fs.idx.Tier()
	return id, err
}

// joinTier joins the disk tier with the index: an old copy of the index is
// replaced, an empty one filled.
func (fs *FS) joinTier() error {
	ctx := context.Background()
	stale, err := evict.BeginTier(ctx, fs.idx, fs.disk)
	if err != nil {
		return err
	}
	if stale {
		if err := fs.replaceIndex("it is an old copy: the disk tier has been used since"); err != nil {
			return err
		}
	}
	if fs.rebuild != "" {
		if err := fs.rebuildIndex(ctx); err != nil {
			return fmt.Errorf("rebuild the index: %w", err)
		}
	}
	err = evict.CountStart(ctx, fs.idx, fs.disk)
	if errors.Is(err, index.ErrFull) || errors.Is(err, index.ErrReadOnly) {
		fs.log.Warn("this start could not be written to the index", "error", err)
		return nil // an old copy may not be told from the index; nothing else rests on it
	}
	return err
}

func (fs *FS) rebuildIndex(ctx context.Context) error {
	began := time.Now()
	r, err := evict.Rebuild(ctx, fs.idx, fs.disk, fs.log)
	if err != nil {
		return err
	}
	nameless, err := fs.skipRAMIDs()
	if err != nil {
		return err
	}
	if _, err := fs.disk.Recount(ctx); err != nil {
		return err
	}
	if err := fs.idx.SetDiskBytes(fs.disk.Usage().ContentBytes()); err != nil {
		return err
	}
	if r == (evict.Rebuilt{}) && nameless == 0 {
		fs.rebuild = "" // a new store
		return nil
	}
	fs.log.Warn("the index was rebuilt from the disk tier", "reason", fs.rebuild, "generations", r.Generations,
		"incomplete", r.Holes, "unreadable", r.Bad+r.Unsure, "ram_pages_without_name", nameless, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// skipRAMIDs keeps the ids of pages in RAM from being given out, and counts the
// pages of which nothing is known any more.
func (fs *FS) skipRAMIDs() (nameless int, err error) {
	var last index.ObjectID
	err = fs.ram.Each(func(id pages.ID, _ pages.Stat) error {
		last = max(last, index.ObjectID(id))
		_, err := fs.idx.Page(id)
		if errors.Is(err, index.ErrNotExist) {
			nameless++
			err = nil
		}
		return err
	})
	if err != nil || last == 0 {
		return nameless, err
	}
	return nameless, fs.idx.SkipIDs(last + 1<<20) // stagings have ids too
}

// tierRefused says in words why the disk tier is not opened.
func tierRefused(dir string, err error) error {
	if !errors.Is(err, pages.ErrTierChanged) {
		return fmt.Errorf("disk tier: %w", err)
	}
	return fmt.Errorf("%s is not the disk tier that this state was used with; mount its disk there, or give up the pages of the old one with 'ckptfs fsck --repair --l2-dir %s': %w", dir, dir, err)
}

// publishedAgain shows a generation that was published without anybody's request.
func (fs *FS) publishedAgain(g *index.Generation) {
	fs.notify.entry(makeNode(kindIdentity, g.Identity.ID), g.Name)
}
