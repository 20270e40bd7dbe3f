package fusefs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

const reasonCleared index.Reason = "it was cleared by an operator"

// ClearReport tells what a clear has done. Bytes of generations are those of all
// their pages, shared ones included.
type ClearReport struct {
	Of             int    `json:"of"`       // generations there were
	Removed        int    `json:"removed"`  // generations
	Stagings       int    `json:"stagings"` // removed
	FreedRAMBytes  int64  `json:"freed_ram_bytes"`
	FreedDiskBytes int64  `json:"freed_disk_bytes"`
	Kept           []Kept `json:"kept"`          // some of what was not removed
	KeptLeftOut    int    `json:"kept_left_out"` // how many more there are
}

// Kept is a generation or a staging that was not removed, and why.
type Kept struct {
	Path    string    `json:"path"`
	Bytes   int64     `json:"bytes"`
	Why     string    `json:"why"`     // leased, pinned
	Holders LeaseList `json:"holders"` // of what is leased: who holds it
}

const (
	maxKept    = 100 // that are told
	maxHolders = 8   // that are told of each
	clearBatch = 64  // generations that are retired in one transaction
)

// clearing is a clear that is under way.
type clearing struct {
	fs     *FS
	force  bool
	leased leased
	gens   []*index.Generation
	drafts []*staging.Draft
	report ClearReport
	tell   func(ClearReport)
}

// clear removes every generation below path that is neither leased nor pinned.
// With force it also removes what is pinned and the stagings, or, if anything is
// leased, nothing.
func (fs *FS) clear(ctx context.Context, path string, force bool, tell func(ClearReport)) error {
	c := &clearing{fs: fs, force: force, tell: tell, leased: fs.allLeased(), report: ClearReport{Kept: []Kept{}}}
	if err := c.find(path); err != nil {
		return err
	}
	c.drafts = slices.DeleteFunc(c.drafts, (*staging.Draft).Ghost) // what rm -r is taking away goes by itself
	c.report.Of = len(c.gens)
	ram, disk := fs.heldBytes()
	defer func() {
		nowRAM, nowDisk := fs.heldBytes()
		c.report.FreedRAMBytes, c.report.FreedDiskBytes = max(ram-nowRAM, 0), max(disk-nowDisk, 0)
		tell(c.report)
	}()
	if force {
		if c.keepLeased(); len(c.report.Kept) > 0 {
			return refusal{CodeBusy, errors.New("something below is in use; nothing was removed")}
		}
		c.discard()
	}
	for batch := range slices.Chunk(c.gens, clearBatch) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.remove(batch); err != nil {
			return err
		}
		tell(c.report)
	}
	if force && len(c.report.Kept) > 0 {
		return refusal{CodeBusy, errors.New("something came into use meanwhile and was kept")}
	}
	return nil
}

func (fs *FS) heldBytes() (ram, disk int64) {
	ram, _ = fs.budget.Usage()
	return ram, fs.disk.Usage().UsedBytes
}

// find lists what is below a path relative to the mount.
func (c *clearing) find(path string) error {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if len(names) > 3 || slices.Contains(names, "..") {
		return refusal{CodeInvalid, errors.New("a path is MODEL, MODEL/IDENTITY or MODEL/IDENTITY/GENERATION")}
	}
	missing := refusal{CodeNotFound, fmt.Errorf("there is no %s", path)}
	if len(names) == 0 {
		c.drafts = c.fs.stage.All()
		return c.fs.eachGeneration(func(g *index.Generation) error { c.gens = append(c.gens, g); return nil })
	}
	m := c.fs.idx.Model(names[0])
	if m == nil {
		return missing
	}
	is := m.Identities(0, 1<<30)
	if len(names) > 1 {
		i := m.Identity(names[1])
		if i == nil {
			return missing
		}
		is = []*index.Identity{i}
	}
	if len(names) > 2 {
		g := is[0].Generation(names[2])
		if g == nil {
			return missing
		}
		c.gens = []*index.Generation{g}
		return nil
	}
	for _, i := range is {
		c.gens = append(c.gens, i.Generations(0, 1<<30)...)
		c.drafts = append(c.drafts, c.fs.stage.OfIdentity(i.ID)...)
	}
	return nil
}

// keep tells of something that is not removed, and by whom it is held.
func (c *clearing) keep(path string, bytes int64, why string, held []heldLease) {
	if len(c.report.Kept) >= maxKept {
		c.report.KeptLeftOut++
		return
	}
	c.report.Kept = append(c.report.Kept, Kept{Path: path, Bytes: bytes, Why: why, Holders: c.fs.describeLeases(held, maxHolders)})
}

func (c *clearing) keepGeneration(g *index.Generation, held []heldLease) {
	c.keep(generationPath(g), g.PageBytes, "leased", held)
}

func (c *clearing) keepDraft(d *staging.Draft) {
	c.keep(draftPath(d), d.PageBytes(), "leased", c.leased.of(d.ID, nil))
}

// keepLeased looks for everything that is leased, without touching it.
func (c *clearing) keepLeased() {
	for _, g := range c.gens {
		ids, err := c.fs.idx.PageIDs(g)
		if err != nil {
			continue // retired meanwhile
		}
		if held := c.leased.of(g.ID, ids); len(held) > 0 {
			c.keepGeneration(g, held)
		}
	}
	for _, d := range c.drafts {
		if d.Held() {
			c.keepDraft(d)
		}
	}
}

// discard ends the stagings, and the trees that are being removed.
func (c *clearing) discard() {
	for _, d := range c.drafts {
		parent, name := c.fs.draftEntry(d)
		switch {
		case d.Held():
			c.keepDraft(d)
		case d.Discard() == nil:
			c.report.Stagings++
			c.fs.notify.entry(parent, name)
		}
	}
}

// remove retires those of the generations that may go, in one transaction.
func (c *clearing) remove(batch []*index.Generation) error {
	var going []*index.Generation
	defer func() {
		for _, g := range going {
			c.fs.leases.spared(g.ID)
		}
	}()
	for _, g := range batch {
		ids, err := c.fs.idx.PageIDs(g)
		switch {
		case err != nil: // retired meanwhile
		case g.Pinned() && !c.force:
			c.keep(generationPath(g), g.PageBytes, "pinned", nil)
		case c.fs.anyOpen(ids) || !c.fs.leases.spare(g.ID):
			c.keepGeneration(g, c.holding(g, ids))
		default:
			going = append(going, g)
		}
	}
	if len(going) == 0 {
		return nil
	}
	gone, err := c.fs.retire(going, reasonCleared, !c.force)
	if err != nil {
		return fmt.Errorf("generations could not be removed: %w", err)
	}
	c.report.Removed += len(gone)
	return nil
}

// holding lists who holds a generation that cannot go.
func (c *clearing) holding(g *index.Generation, ids []pages.ID) []heldLease {
	held := c.leased.of(g.ID, ids)
	if len(held) == 0 && len(c.report.Kept) < maxKept { // it came into use meanwhile
		c.leased = c.fs.allLeased()
		held = c.leased.of(g.ID, ids)
	}
	return held
}

// anyOpen reports whether a handle is open on any of the pages.
func (fs *FS) anyOpen(ids []pages.ID) bool { return slices.ContainsFunc(ids, fs.live.IsOpen) }
