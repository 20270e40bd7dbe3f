package staging

import (
	"sync"
	"testing"

	"ckptfs/index"
)

// linksWhatIsThere checks that every page of the staging has its file, and those
// that a generation had their row.
func (b *bench) linksWhatIsThere(t *testing.T, d *Draft) {
	t.Helper()
	for slot, ref := range d.pageRefs() {
		if ref.ID == 0 {
			continue
		}
		if _, err := b.ram.Stat(ref.ID); err != nil {
			t.Fatalf("slot %d: page %d is linked and not there: %v", slot, ref.ID, err)
		}
		if ref.Staged() {
			continue
		}
		if _, err := b.idx.Page(ref.ID); err != nil {
			t.Fatalf("slot %d: page %d is linked: %v", slot, ref.ID, err)
		}
	}
}

// TestLinkWhatGoes: a page whose last holder goes while another staging looks for
// it is either kept for that or absent.
func TestLinkWhatGoes(t *testing.T) {
	b := newBench(t)
	both := func(f, g func()) {
		var wg sync.WaitGroup
		wg.Go(f)
		wg.Go(g)
		wg.Wait()
	}
	look := func(d *Draft) func() {
		return func() {
			if _, err := d.PlanJSON(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("its staging is discarded", func(t *testing.T) {
		for range 60 {
			x, y := b.stage("x", 1, 200), b.stage("y", 1, 200)
			b.fill(x)
			b.missing(x)
			both(func() { b.must(x.Discard()) }, look(y))
			b.linksWhatIsThere(t, y)
			b.must(y.Discard())
			b.usage(0, 0)
		}
	})
	t.Run("its generation is retired", func(t *testing.T) {
		for range 60 {
			x, y := b.stage("x", 1, 196), b.stage("y", 1, 200)
			b.fill(x)
			g := b.publish(x)
			both(func() { b.must(b.Retire([]*index.Generation{g}, "gone", 0)) }, look(y))
			b.linksWhatIsThere(t, y)
			b.must(y.Discard())
			if n := b.files(); n != 0 {
				t.Fatalf("%d page files are left", n)
			}
		}
	})
}
