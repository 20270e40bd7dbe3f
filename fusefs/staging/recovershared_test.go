package staging

import (
	"errors"
	"slices"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

// TestKilledWithAPageOfTwo: two stagings had a page, one of them gave it up, and
// the daemon is killed. The other has it all the same, whichever is read first.
func TestKilledWithAPageOfTwo(t *testing.T) {
	for _, published := range []bool{false, true} {
		b := newBench(t)
		var first, second *Draft
		var g *index.Generation
		if published { // by a generation that goes
			x := b.stage("w", 1, 8)
			b.fill(x)
			g = b.publish(x)
			first, second = b.stage("x", 1, 12), b.stage("y", 1, 12)
			b.must(b.Retire([]*index.Generation{g}, "gone", 0))
		} else {
			first, second = b.stage("x", 1, 12), b.stage("y", 1, 12)
			b.must(b.writePage(second, 0, pageBytes))
			b.missing(second)
			b.missing(first)
		}
		p, name := place(first, 0)
		e, err := second.Lookup(p, name)
		b.must(err)
		if f, err := first.Lookup(p, name); err != nil || f.Page.ID != e.Page.ID {
			t.Fatalf("the page is not shared: %v, %v", f, err)
		}
		b.must(first.Unlink(p, name, b.nextOp()))
		held, reserved := b.budget.Usage()
		ids := []index.ObjectID{first.ID, second.ID}
		b.reopen()
		for _, id := range ids {
			d, ok := b.ByID(id)
			if !ok {
				t.Fatal("a staging is gone")
			}
			b.linksWhatIsThere(t, d)
		}
		second, _ = b.ByID(ids[1])
		if f, err := second.Lookup(p, name); err != nil || f.Page.ID != e.Page.ID {
			t.Errorf("the page of the other staging: %v, %v", f, err)
		}
		if h, r := b.budget.Usage(); h != held || r != reserved {
			if !published { // published pages are charged by the tiers
				t.Errorf("%d held, %d reserved; was %d and %d", h, r, held, reserved)
			}
		}
		b.fill(second)
		b.publish(second)
	}
}

// TestKilledAfterAnotherPublished: a page that a staging made and another one has
// published is that generation's, also for a daemon that reads it in the first
// one's journal.
func TestKilledAfterAnotherPublished(t *testing.T) {
	for _, scratch := range []bool{false, true} {
		b := newBench(t)
		x, y := b.stage("x", 1, 8), b.stage("y", 1, 12)
		if scratch {
			att := Place{LevelGroup, 0, 0}
			_, f, err := x.CreateScratch(att, ".tmp", Owner{Mode: 0o600}, b.nextOp())
			b.must(err)
			_, err = f.Write(make([]byte, pageBytes))
			b.must(errors.Join(err, f.Close()))
			b.must(x.RenameScratch(t.Context(), att, ".tmp", att, "00000000", false, b.nextOp()))
		} else {
			b.must(b.writePage(x, 0, pageBytes))
		}
		b.missing(x)
		b.fill(y)
		g := b.publish(y)
		c, err := b.idx.Contents(g)
		b.must(err)
		if e, err := x.Lookup(Place{LevelGroup, 0, 0}, "00000000"); err != nil || e.Page.ID != c.Pages[0] {
			t.Fatalf("the page is not shared: %v, %v", e, err)
		}
		b.reopen()
		x, _ = b.ByID(x.ID)
		if _, staged := b.StagedPage(c.Pages[0]); staged {
			t.Error("a generation's page is taken for a staged one")
		}
		b.must(x.Discard())
		for _, id := range c.Pages {
			if _, err := b.ram.Stat(id); err != nil {
				t.Errorf("a page of the generation: %v", err)
			}
		}
		b.usage(0, 0) // published pages are the tiers' to charge
	}
}

// TestKilledWithALink: a page that a staging has linked stays its generation's:
// it can be opened while the staging lets it go.
func TestKilledWithALink(t *testing.T) {
	for _, ghost := range []bool{false, true} {
		b := newBench(t)
		x := b.stage("x", 1, 8)
		b.fill(x)
		g := b.publish(x)
		c, err := b.idx.Contents(g)
		b.must(err)
		y := b.stage("y", 1, 12)
		shared := slices.DeleteFunc(slices.Clone(c.Pages), func(id pages.ID) bool { return !b.Live.Held(id) })
		if ghost {
			b.fill(y)
			g := b.publish(y)
			y, err = b.Unpublish(g, g.Name, true, nil, "deleted", 0)
			b.must(err)
		}
		b.reopen()
		y, _ = b.ByID(y.ID)
		looked := false
		b.Changed = func([]pages.ID) {
			looked = true
			for _, id := range shared {
				if !b.Live.Open(id, pageBytes) {
					t.Errorf("page %d of a generation cannot be opened", id)
				} else {
					b.Live.Close(id)
				}
			}
		}
		b.must(y.Discard())
		if !looked || len(shared) == 0 {
			t.Error("nobody looked")
		}
	}
}

// TestKilledWithAScratchOfTwo: as TestKilledWithAPageOfTwo, with a page that was a
// scratch file, and whose link is read before.
func TestKilledWithAScratchOfTwo(t *testing.T) {
	for _, made := range []bool{false, true} {
		b := newBench(t)
		y, x := b.stage("y", 1, 12), b.stage("x", 1, 12)
		att := Place{LevelGroup, 0, 0}
		if made {
			b.must(b.writePage(x, 0, pageBytes))
		} else {
			_, f, err := x.CreateScratch(att, ".tmp", Owner{Mode: 0o600}, b.nextOp())
			b.must(err)
			_, err = f.Write(make([]byte, pageBytes))
			b.must(errors.Join(err, f.Close()))
			b.must(x.RenameScratch(t.Context(), att, ".tmp", att, "00000000", false, b.nextOp()))
		}
		b.missing(x)
		b.missing(y)
		if e, err := y.Lookup(att, "00000000"); err != nil || b.Live.Refs(e.Page.ID) != 2 {
			t.Fatalf("the page is not shared: %v, %v", e, err)
		}
		held, reserved := b.budget.Usage()
		b.reopen()
		if h, r := b.budget.Usage(); h != held || r != reserved {
			t.Errorf("%d held, %d reserved; was %d and %d", h, r, held, reserved)
		}
		x, _ = b.ByID(x.ID)
		y, _ = b.ByID(y.ID)
		e, err := y.Lookup(att, "00000000")
		b.must(err)
		if owner, ok := b.Maker(e.Page.ID); !ok || owner != x {
			t.Error("who has it open does not hold the staging that made it")
		}
		b.must(x.Discard())
		b.linksWhatIsThere(t, y)
		b.fill(y)
		b.publish(y)
	}
}
