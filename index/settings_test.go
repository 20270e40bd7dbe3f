package index

import (
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"ckptfs/pages"
)

func TestSettingsOutliveAReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := openStore(t, path)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(600, 0)})
	other := publish(t, x, i, draft{tokens: repeated(300, 7000)})
	for _, err := range []error{
		x.SetPin(g, true, 0), x.SetPin(g, true, 0), x.SetPin(i.Model, true, 0),
		x.SetQuota(i, 1<<30, 0), x.SetPin(i, true, 0), x.SetPin(i, false, 0), x.SetPin(i.Model, false, 9),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !x.Done(9) {
		t.Error("the request is not recorded")
	}
	mustCheck(t, x)
	mustClose(t, x)

	x = openStore(t, path)
	i = x.IdentityByID(i.ID)
	g, other = x.GenerationByID(g.ID), x.GenerationByID(other.ID)
	if !g.PinnedItself() || !g.Pinned() || other.Pinned() || i.PinnedItself() || i.Quota() != 1<<30 || x.Pins() != 1 {
		t.Errorf("pinned %v, %v, %v; identity %v with quota %d; %d pins", g.PinnedItself(), g.Pinned(), other.Pinned(),
			i.PinnedItself(), i.Quota(), x.Pins())
	}
	if err := x.SetPin(i, true, 0); err != nil || !other.Pinned() || other.PinnedItself() {
		t.Errorf("a generation of a pinned identity: %v, %v", other.Pinned(), err)
	}
	// What goes takes its settings with it.
	if _, err := x.Retire([]*Generation{g, other}, "for a test", 1, 0, nil); err != nil {
		t.Fatal(err)
	}
	if x.Pins() != 1 || g.PinnedItself() {
		t.Errorf("%d pins after the pinned generation is gone", x.Pins())
	}
	if err := x.SetPin(g, true, 0); !errors.Is(err, ErrNotExist) {
		t.Errorf("pinning what is gone: %v", err)
	}
	if err := errors.Join(x.RemoveDocument(i, 0), x.RemoveIdentity(i, 0), x.RemoveModel(i.Model, 0)); err != nil || x.Pins() != 0 {
		t.Errorf("%d pins in an empty store, %v", x.Pins(), err)
	}
}

func TestUsedBytes(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	const page = 64
	d := draft{tokens: repeated(600, 0), pageBytes: page}
	short := publish(t, x, i, d)
	used := func() int64 { t.Helper(); mustCheck(t, x); return must(x.UsedBytes(i)) / page }

	if n := used(); n != 2*6 {
		t.Errorf("%d pages, want 12", n)
	}
	d.tokens = repeated(1000, 0) // 8 attention pages, 4 of them shared, and a recurrent one a rank
	long := publish(t, x, i, d)
	if n := used(); n != 2*(6+5) {
		t.Errorf("%d pages with a second generation, want 22", n)
	}
	neighbour := newIdentity(t, x, "another")
	publish(t, x, neighbour, d)
	if n := used(); n != 22 {
		t.Errorf("%d pages with a neighbour, want 22", n)
	}
	// Pages that a staging keeps have no generation, and count again when they get one.
	kept := must(publication(x, i, d))
	kept.ID = x.NextID()
	if _, err := x.Retire([]*Generation{long}, "for a test", 1, 0, func(pages.ID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if n := used(); n != 12 {
		t.Errorf("%d pages after one is retired, want 12", n)
	}
	if _, _, err := x.Publish(kept); err != nil {
		t.Fatal(err)
	}
	if n := used(); n != 22 {
		t.Errorf("%d pages when it is published again, want 22", n)
	}
	if _, err := x.Retire(i.Generations(0, 9), "for a test", 2, 0, nil); err != nil {
		t.Fatal(err)
	}
	if n := used(); n != 0 || short.Retired() == false {
		t.Errorf("%d pages in an empty identity", n)
	}
	if n := must(x.UsedBytes(neighbour)) / page; n != 2*9 {
		t.Errorf("%d pages of the neighbour, want 18", n)
	}
}

func TestLinking(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	short := publish(t, x, i, draft{tokens: repeated(600, 0)})
	long := publish(t, x, i, draft{tokens: repeated(1000, 0)})
	c := must(x.Contents(short))
	gs := must(x.Linking(c.Pages[0]))
	if len(gs) != 2 || gs[0] != short && gs[0] != long || gs[0] == gs[1] {
		t.Errorf("the first page is in %v", gs)
	}
	if gs := must(x.Linking(c.Pages[5])); len(gs) != 1 || gs[0] != short {
		t.Errorf("a page of its own is in %v", gs)
	}
}

// TestRetireUnpinned leaves alone what is pinned when it happens.
// TestLinkingWhileVeryMuchIsRetired: the table of linkers is forgotten when most
// of it is gone, also while it is being made.
func TestLinkingWhileVeryMuchIsRetired(t *testing.T) {
	x := newStore(t)
	g := publish(t, x, newIdentity(t, x, ""), draft{tokens: repeated(600, 0)})
	page := must(x.PageIDs(g))[0]
	for range cap(x.readers.slots) { // reads wait
		x.readers.slots <- struct{}{}
	}
	found := make(chan []*Generation)
	go func() { found <- must(x.Linking(page)) }()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		_, begun = x.linkers.of(page)
	}
	for range 2000 {
		x.linkers.retired()
	}
	for range cap(x.readers.slots) {
		<-x.readers.slots
	}
	if gs := <-found; len(gs) != 1 || gs[0] != g {
		t.Errorf("linked by %v", gs)
	}
}

// TestPinAndQuotaAtOnce: neither takes the other back.
func TestPinAndQuotaAtOnce(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	for n := range int64(100) {
		var wg sync.WaitGroup
		x.writer.mu.Lock() // both wait for it
		wg.Go(func() {
			if err := x.SetPin(i, n%2 == 0, 0); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := x.SetQuota(i, n, 0); err != nil {
				t.Error(err)
			}
		})
		runtime.Gosched()
		x.writer.mu.Unlock()
		wg.Wait()
		if i.PinnedItself() != (n%2 == 0) || i.Quota() != n {
			t.Fatalf("pinned: %v, quota: %d, want %d", i.PinnedItself(), i.Quota(), n)
		}
	}
}

func TestRetireUnpinned(t *testing.T) {
	x := openStore(t, filepath.Join(t.TempDir(), "index.db"))
	i := newIdentity(t, x, "")
	a := publish(t, x, i, draft{tokens: repeated(300, 1)})
	b := publish(t, x, i, draft{tokens: repeated(300, 2)})
	if err := x.SetPin(a, true, 0); err != nil {
		t.Fatal(err)
	}
	r, err := x.RetireUnpinned([]*Generation{a, b}, "a test", 5, nil)
	if err != nil || len(r.Generations) != 1 || r.Generations[0] != b || a.Retired() || !b.Retired() {
		t.Errorf("retired %v: %v", r.Generations, err)
	}
	if r, err = x.Retire([]*Generation{a}, "a test", 5, 0, nil); err != nil || !a.Retired() || x.Pins() != 0 {
		t.Errorf("retired %v: %v", r.Generations, err)
	}
	if problems := x.Check(); len(problems) > 0 {
		t.Error(problems)
	}
}
