package staging

import (
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
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

// TestPublishedFromAGoneGeneration: pages that only a staging kept are a
// generation's again, and can be opened, from the instant of its publication.
func TestPublishedFromAGoneGeneration(t *testing.T) {
	b := newBench(t)
	x := b.stage("x", 1, 8)
	b.fill(x)
	first := b.publish(x)
	y := b.stage("y", 1, 12)
	b.fill(y)
	b.must(b.Retire([]*index.Generation{first}, "gone", 0))
	kept, err := b.idx.UnlinkedPages()
	b.must(err)
	if len(kept) == 0 {
		t.Fatal("nothing is kept by the staging alone")
	}
	looked := false
	b.Changed = func([]pages.ID) {
		looked = true
		for _, id := range kept {
			if !b.Live.Open(id, pageBytes) {
				t.Errorf("page %d of the new generation cannot be opened", id)
			} else {
				b.Live.Close(id)
			}
		}
	}
	b.publish(y)
	if !looked {
		t.Error("nobody looked")
	}
}

// TestRetiredBeforeItIsFinished: a generation that is retired before its staging
// has ended leaves nothing behind.
func TestRetiredBeforeItIsFinished(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.fill(d)
	_, err := d.Publish(d.mu.content.derived.Name, b.nextOp(), func(g *index.Generation) {
		b.must(b.Retire([]*index.Generation{g}, "gone", 0))
	})
	b.must(err)
	left, err := b.idx.UnlinkedPages()
	b.must(err)
	if n := b.files(); n != 0 || len(left) != 0 {
		t.Errorf("%d files and %d rows are left", n, len(left))
	}
	b.usage(0, 0)
}

// opensIt opens a page while it is looked at.
type opensIt struct{ *bench }

func (o opensIt) Writing(id pages.ID) bool {
	o.Live.Open(id, pageBytes)
	return false
}

// TestTakenUpWhileItIsDropped: half a page that is opened while another rank finds
// that its writer is gone stays where it is; one that was found so is not opened.
func TestTakenUpWhileItIsDropped(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	slots := b.missing(d)
	b.must(b.writePage(d, slots[0], 1))
	p, name := place(d, slots[0])
	e, err := d.LookupAny(p, name)
	b.must(err)
	old := b.writers
	b.writers = opensIt{b}
	b.must(d.dropAbandoned(slots[:1]))
	b.writers = old
	if now, err := d.LookupAny(p, name); err != nil || now.Page.ID != e.Page.ID {
		t.Errorf("a page that is open was dropped: %v", err)
	}
	b.Live.Close(e.Page.ID)
	if !b.Live.Abandon(e.Page.ID) || b.Live.Open(e.Page.ID, pageBytes) {
		t.Error("an abandoned page was opened")
	}
}

// TestLinkedWhileRoomIsMade: a page that comes to be there while a create waits
// for RAM leaves nothing reserved.
func TestLinkedWhileRoomIsMade(t *testing.T) {
	b := newBench(t)
	x, y := b.stage("x", 1, 8), b.stage("y", 1, 8)
	b.must(b.writePage(y, 0, pageBytes))
	p, name := place(y, 0)
	b.must(y.Unlink(p, name, b.nextOp())) // with what was reserved for it
	b.Waited = func(time.Duration) {
		b.Waited = nil
		b.must(b.writePage(x, 0, pageBytes))
		b.missing(y)
	}
	wantErrno(t, b.writePage(y, 0, pageBytes), syscall.EEXIST)
	b.fill(y)
	b.publish(y)
	b.must(x.Discard())
	b.usage(6, 0)
}

// TestListedBesideAbandoned: less than what was asked for is the end of a
// directory, also when pages that were abandoned are left out.
func TestListedBesideAbandoned(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 40)
	att := Place{LevelGroup, 0, 0}
	for _, s := range b.missing(d) {
		if p, _ := place(d, s); p == att {
			b.must(b.writePage(d, s, pageBytes))
		}
	}
	for _, name := range []string{"00000001", "00000003", "00000009"} {
		b.must(d.Unlink(att, name, b.nextOp()))
		id, f, err := d.CreatePage(t.Context(), att, name, Owner{Mode: 0o644}, b.nextOp())
		b.must(err)
		b.must(f.Close())
		d.m.Opened(id)
	}
	for max := 1; max < 12; max++ {
		n, after := 0, uint64(0)
		for {
			es, err := d.List(att, after, max)
			b.must(err)
			if n += len(es); len(es) < max {
				break
			}
			after = es[max-1].Cookie
		}
		if n != 7 {
			t.Errorf("%d at a time: %d pages listed, 7 are there", max, n)
		}
	}
}

// TestHeldWhileItIsReaped: a staging that somebody opens in the instant of its
// timeout stays.
func TestHeldWhileItIsReaped(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.now = b.now.Add(2 * time.Minute)
	b.Now = func() time.Time { return b.now }
	waits := make(chan struct{})
	d.mu.Lock() // a publication is being decided
	d.mu.publishing, d.mu.decided = true, make(chan struct{})
	d.mu.Unlock()
	wantErrno(t, func() error {
		go func() { d.Hold(); d.decide(); close(waits) }()
		return d.discard(func() bool { return !d.idleSinceLocked().IsZero() })
	}(), syscall.EBUSY)
	<-waits
	if left := b.Reap(); len(left) != 0 {
		t.Error("it was discarded while it was held")
	}
	d.Unhold()
	b.now = b.now.Add(2 * time.Minute)
	if gone := b.Reap(); len(gone) != 1 {
		t.Error("it was not discarded after its timeout")
	}
	b.usage(0, 0)
}

// TestPublishedWhileItIsLetGo: a page that the last staging lets go, and a new
// generation has in this instant, can be opened.
func TestPublishedWhileItIsLetGo(t *testing.T) {
	b := newBench(t)
	x, y := b.stage("x", 1, 8), b.stage("y", 1, 8)
	slots := b.missing(y)
	for _, s := range slots {
		b.must(b.writePage(y, s, 1)) // no others link them yet
	}
	b.fill(x)
	first := b.publish(x)
	b.missing(b.stage("z", 1, 8)) // it links those of the generation
	b.must(b.Retire([]*index.Generation{first}, "gone", 0))
	kept, err := b.idx.UnlinkedPages()
	b.must(err)
	if len(kept) != len(slots) {
		t.Fatalf("%d of %d pages are kept by the staging", len(kept), len(slots))
	}
	for _, ref := range y.pageRefs() {
		b.must(os.Truncate(b.ram.Path(ref.ID), pageBytes))
	}
	for _, id := range kept {
		if _, drop := b.Live.Unref(id); !drop { // as when z is discarded
			t.Fatalf("page %d stays", id)
		}
	}
	g := b.publish(y)
	ids, err := b.idx.PageIDs(g)
	b.must(err)
	for _, id := range ids {
		if !slices.Contains(kept, id) {
			t.Errorf("page %d is another one than what was there", id)
		}
		if !b.Live.Open(id, pageBytes) {
			t.Errorf("page %d of the new generation cannot be opened", id)
		} else {
			b.Live.Close(id)
		}
	}
}
