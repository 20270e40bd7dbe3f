package staging

import (
	"testing"

	"ckptfs/index"
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
