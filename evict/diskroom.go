package evict

import (
	"context"
	"errors"
	"slices"

	"ckptfs/index"
	"ckptfs/pages"
)

// The disk tier's bounds: --l2-size, which it may not exceed, and --l2-min-free,
// which it leaves to others on its disk.

// mostForOthers is the part of the tier that goes at once because the disk has
// too little left. Where more is missing somebody else has filled the disk, and
// giving up pages would not help.
const mostForOthers = 1.0 / 8

// diskFull reports whether a write failed at one of the bounds.
func diskFull(err error) bool {
	return errors.Is(err, pages.ErrDiskBound) || errors.Is(err, pages.ErrDiskMinFree)
}

// diskRoom makes room in the disk tier for a write of so many bytes, on behalf of
// a generation (0: nobody knows for whom). True if it may be enough.
func (t *Tiers) diskRoom(ctx context.Context, need int64, on index.ObjectID) bool {
	t.bounding.Lock()
	defer t.bounding.Unlock()
	over, others, err := t.Disk.Missing(need)
	if err != nil {
		return false
	}
	u := t.Disk.Usage()
	if float64(others) > mostForOthers*float64(u.ContentBytes()) {
		return false
	}
	missing := max(over, others)
	// A little more than needed, so that not every write comes here.
	t.giveUp(ctx, missing+u.ContentBytes()/64, on)
	return u.UsedBytes-t.Disk.Usage().UsedBytes >= missing
}

// giveUp retires generations with pages on disk, as wholes, until so many bytes
// of it are free: the superseded first, then the coldest. None goes that is wanted
// more than the one on whose behalf it is: that one goes itself then. bounding is
// held.
func (t *Tiers) giveUp(ctx context.Context, bytes int64, on index.ObjectID) (generations int) {
	target := t.Disk.Usage().UsedBytes - bytes
	order := t.Coldest()
	last := slices.Index(order, on)
	if last >= 0 {
		order = order[:last]
	}
	// Where generations share all that they have on disk, the first look finds
	// none whose end would free anything.
	for _, look := range []func([]*index.Page, bool) bool{freesDisk, onDisk} {
		for _, id := range order {
			if t.Disk.Usage().UsedBytes <= target || ctx.Err() != nil {
				return generations
			}
			generations += t.giveUpOne(id, look)
		}
	}
	if last >= 0 && t.Disk.Usage().UsedBytes > target {
		generations += t.giveUpOne(on, nil)
	}
	return generations
}

// giveUpOne retires a generation, if it may go and its pages are as wanted.
// It returns how many it has retired.
func (t *Tiers) giveUpOne(id index.ObjectID, wanted func(rows []*index.Page, superseded bool) bool) int {
	g := t.Index.GenerationByID(id)
	if g == nil || g.Pinned() {
		return 0
	}
	rows := t.rowsOf(g)
	if wanted != nil && !wanted(rows, g.State().Superseded()) || t.inUse(rows) || !t.Spare(id) {
		return 0
	}
	defer t.Spared(id)
	if err := t.Retire([]*index.Generation{g}, ReasonDiskFull); err != nil {
		t.Log.Warn("a generation could not be retired to make room on disk", "generation", g.Name, "error", err)
		return 0
	}
	if !g.Retired() {
		return 0 // pinned in this instant
	}
	return 1
}

// onDisk reports whether any of a generation's pages is on disk.
func onDisk(rows []*index.Page, _ bool) bool {
	return slices.ContainsFunc(rows, func(p *index.Page) bool { return p.Disk() != 0 })
}

// freesDisk reports whether the end of a generation frees space on disk now, or
// does when the other superseded ones have gone too.
func freesDisk(rows []*index.Page, superseded bool) bool {
	return slices.ContainsFunc(rows, func(p *index.Page) bool { return p.Disk() != 0 && (superseded || p.Links() <= 1) })
}

// FitDisk brings a tier that holds more than its bound, since that has become
// smaller, down to it. The policy must have learned what there is.
func (t *Tiers) FitDisk(ctx context.Context) {
	if t.Disk == nil {
		return
	}
	t.bounding.Lock()
	defer t.bounding.Unlock()
	over, _, err := t.Disk.Missing(0)
	if err != nil || over <= 0 {
		return
	}
	u := t.Disk.Usage()
	t.Log.Warn("the disk tier holds more than --l2-size; generations are given up, the coldest first",
		"bytes", u.UsedBytes, "bound", u.SizeBytes, "too_many_bytes", over, "generations", t.Index.Count())
	n := t.giveUp(ctx, over, 0)
	left, _, _ := t.Disk.Missing(0)
	t.Log.Info("the disk tier is within --l2-size", "generations_given_up", n, "bytes", t.Disk.Usage().UsedBytes, "too_many_bytes", max(left, 0))
}
