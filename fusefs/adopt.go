package fusefs

import (
	"fmt"
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

// adoptPages makes the RAM tier and the index agree at start: page files that
// nothing needs are removed, the others charged, and generations whose pages are
// gone retired.
func (fs *FS) adoptPages() error {
	unlinked, err := fs.idx.UnlinkedPages()
	if err != nil {
		return err
	}
	if err := fs.dropUnlinked(unlinked); err != nil {
		return err
	}
	have := map[pages.ID]bool{}
	err = fs.ram.Each(func(id pages.ID, st pages.Stat) error {
		have[id] = true
		return fs.adoptPage(id, st)
	})
	if err != nil {
		return fmt.Errorf("RAM tier: %w", err)
	}
	return fs.retireLost(have)
}

// dropUnlinked deletes the rows that a former daemon kept for stagings which
// are gone.
func (fs *FS) dropUnlinked(ids []pages.ID) error {
	var gone []pages.ID
	for _, id := range ids {
		if !fs.live.Leased(id) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	_, err := fs.idx.DropPages(gone)
	return err
}

// adoptPage charges a page file, or removes it.
func (fs *FS) adoptPage(id pages.ID, st pages.Stat) error {
	if _, staged := fs.stage.StagedPage(id); staged {
		return nil // charged by its staging
	}
	p, err := fs.idx.Page(id)
	switch {
	case err == nil:
		fs.budget.Hold(evict.Charge(p.Bytes))
		return nil
	case fs.live.Leased(id):
		fs.budget.Hold(evict.Charge(st.Bytes))
		return nil
	}
	return fs.ram.Remove(id)
}

// retireLost retires the generations that need a page which is not in RAM.
func (fs *FS) retireLost(have map[pages.ID]bool) error {
	var lost []*index.Generation
	err := fs.eachGeneration(func(g *index.Generation) error {
		if len(have) == 0 && g.PageCount > 0 {
			lost = append(lost, g)
			return nil
		}
		c, err := fs.idx.Contents(g)
		if err != nil {
			return err
		}
		for _, id := range c.Pages {
			if !have[id] {
				lost = append(lost, g)
				break
			}
		}
		return nil
	})
	if err != nil || len(lost) == 0 {
		return err
	}
	fs.log.Info("generations whose pages did not survive in RAM are retired", "generations", len(lost))
	fs.count.generationsRetired.Add(int64(len(lost)))
	return fs.stage.Retire(lost, reasonLost, 0)
}

func (fs *FS) eachGeneration(fn func(*index.Generation) error) error {
	for am := index.ObjectID(0); ; {
		ms := fs.idx.Models(am, listBatch)
		for _, m := range ms {
			for _, i := range m.Identities(0, 1<<30) {
				for _, g := range i.Generations(0, 1<<30) {
					if err := fn(g); err != nil {
						return err
					}
				}
			}
			am = m.ID
		}
		if len(ms) < listBatch {
			return nil
		}
	}
}

// retireServerSide retires generations that nobody asked to delete, and has the
// kernel forget their names.
func (fs *FS) retireServerSide(gs []*index.Generation, reason index.Reason) error {
	if err := fs.stage.Retire(gs, reason, 0); err != nil {
		return err
	}
	fs.count.generationsRetired.Add(int64(len(gs)))
	for _, g := range gs {
		fs.log.Info("generation retired", "reason", string(reason), "identity", g.Identity.Name, "generation", g.Name, "age", fs.now().Sub(time.Unix(0, g.Published)).Round(time.Second))
		fs.notify.entry(makeNode(kindIdentity, g.Identity.ID), g.Name)
	}
	return nil
}
