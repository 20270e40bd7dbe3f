package fusefs

import (
	"context"
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

// adoptBefore is how long a start looks at the page files in RAM before it serves.
// With very many the rest is looked at beside the service.
const adoptBefore = 100 * time.Millisecond

// adoptPages makes the tiers and the index agree at start: page files that
// nothing needs are removed, the others charged, and generations whose pages
// have no copy retired.
func (fs *FS) adoptPages() error {
	done, err := fs.tiers.AdoptRAM(adoptBefore, fs.staged)
	if err != nil {
		return err
	}
	if err := fs.dropUnlinked(); err != nil || !done {
		return err
	}
	lost, err := fs.lostInRAM(false)
	if err != nil || len(lost) == 0 {
		return err
	}
	fs.count.retire(evict.ReasonLost, len(lost))
	return fs.stage.Retire(lost, evict.ReasonLost, 0)
}

// adoptRest does what adoptPages has left.
func (fs *FS) adoptRest(ctx context.Context) error {
	if !fs.tiers.Adopting() {
		return nil
	}
	began := fs.now()
	if err := fs.tiers.AdoptRest(ctx, fs.staged); err != nil {
		return err
	}
	lost, err := fs.lostInRAM(true)
	if err == nil && len(lost) > 0 {
		err = fs.retireServerSide(lost, evict.ReasonLost)
	}
	fs.log.Info("all pages in RAM are taken up", "pages", fs.tiers.Resident(), "took", fs.now().Sub(began).Round(time.Millisecond))
	return err
}

func (fs *FS) staged(id pages.ID) bool {
	_, staged := fs.stage.StagedPage(id)
	return staged
}

// lostInRAM lists the generations that need pages which have no copy.
func (fs *FS) lostInRAM(serving bool) ([]*index.Generation, error) {
	lost, err := fs.tiers.LostInRAM(serving)
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	absent, unsure, err := fs.tiers.Confirm(lost)
	if err != nil {
		return nil, err
	}
	if unsure > 0 {
		fs.log.Warn("the disk could not tell of all pages that are not in RAM; lookups will ask again", "pages", unsure)
	}
	return fs.needing(absent)
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

// needing lists the generations that need any of the pages.
func (fs *FS) needing(absent []*index.Page) (gs []*index.Generation, err error) {
	if len(absent) == 0 {
		return nil, nil
	}
	gone := make(map[pages.ID]bool, len(absent))
	for _, p := range absent {
		gone[p.ID] = true
	}
	err = fs.eachGeneration(func(g *index.Generation) error {
		c, err := fs.idx.Contents(g)
		if err != nil && g.Retired() {
			return nil
		}
		if err == nil && slices.ContainsFunc(c.Pages, func(id pages.ID) bool { return gone[id] }) {
			gs = append(gs, g)
		}
		return err
	})
	if len(gs) > 0 {
		fs.log.Info("generations whose pages did not survive are retired", "generations", len(gs), "pages", len(absent))
	}
	return gs, err
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
