package fusefs

import (
	"slices"
	"time"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

func objectID(n uint64) index.ObjectID { return index.ObjectID(n) }

func ramTierName(k pages.RAMKind) string {
	if k == pages.RAMTmpfs {
		return "tmpfs"
	}
	return "shm"
}

// adoptPages makes the tiers and the index agree at start: page files that
// nothing needs are removed, the others charged, and generations whose pages
// have no copy retired.
func (fs *FS) adoptPages() error {
	lost, err := fs.tiers.AdoptRAM(fs.adoptOther)
	if err != nil {
		return err
	}
	if err := fs.dropUnlinked(); err != nil {
		return err
	}
	if len(lost) == 0 {
		return nil
	}
	absent, unsure, err := fs.tiers.Confirm(lost)
	if err != nil {
		return err
	}
	if unsure > 0 {
		fs.log.Warn("the disk could not tell of all pages that are not in RAM; lookups will ask again", "pages", unsure)
	}
	return fs.retireLost(absent)
}

// adoptOther looks at a page file without a row: a staging's, one that is still
// open, or one that nothing needs.
func (fs *FS) adoptOther(id pages.ID, st pages.Stat) error {
	if _, staged := fs.stage.StagedPage(id); staged {
		return nil // charged by its staging
	}
	if fs.live.Leased(id) {
		fs.budget.Hold(evict.Charge(st.Bytes))
		return nil
	}
	_, err := fs.ram.Remove(id)
	return err
}

// dropUnlinked deletes the rows that a former daemon kept for stagings which
// are gone.
func (fs *FS) dropUnlinked() error {
	ids, err := fs.idx.UnlinkedPages()
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, fs.live.Held)
	if len(ids) == 0 {
		return nil
	}
	dropped, err := fs.idx.DropPages(ids)
	for _, p := range dropped {
		fs.live.Dead(p)
	}
	return err
}

// retireLost retires the generations that need pages which have no copy.
func (fs *FS) retireLost(absent []*index.Page) error {
	if len(absent) == 0 {
		return nil
	}
	gone := make(map[pages.ID]bool, len(absent))
	for _, p := range absent {
		gone[p.ID] = true
	}
	var lost []*index.Generation
	err := fs.eachGeneration(func(g *index.Generation) error {
		c, err := fs.idx.Contents(g)
		if err == nil && slices.ContainsFunc(c.Pages, func(id pages.ID) bool { return gone[id] }) {
			lost = append(lost, g)
		}
		return err
	})
	if err != nil || len(lost) == 0 {
		return err
	}
	fs.log.Info("generations whose pages did not survive are retired", "generations", len(lost), "pages", len(absent))
	fs.count.retire(evict.ReasonLost, len(lost))
	return fs.stage.Retire(lost, evict.ReasonLost, 0)
}

func (fs *FS) eachGeneration(fn func(*index.Generation) error) error {
	return fs.idx.EachGeneration(fn)
}

// retireServerSide retires generations that nobody asked to delete, and has the
// kernel forget their names. A pinned one goes only if it is lost.
func (fs *FS) retireServerSide(gs []*index.Generation, reason index.Reason) error {
	_, err := fs.retire(gs, reason, reason != evict.ReasonLost)
	return err
}

// retire is retireServerSide; it tells which have gone. Those that are pinned go
// only if pins are not heeded.
func (fs *FS) retire(gs []*index.Generation, reason index.Reason, heedPins bool) (gone []*index.Generation, err error) {
	if heedPins {
		gs, err = fs.stage.RetireUnpinned(gs, reason)
	} else {
		err = fs.stage.Retire(gs, reason, 0)
	}
	if err != nil {
		return nil, err
	}
	fs.count.retire(reason, len(gs))
	for _, g := range gs {
		fs.log.Info("generation retired", "reason", string(reason), "identity", g.Identity.Name, "generation", g.Name, "age", fs.now().Sub(time.Unix(0, g.Published)).Round(time.Second))
		fs.notify.entry(makeNode(kindIdentity, g.Identity.ID), g.Name)
	}
	return gs, nil
}
