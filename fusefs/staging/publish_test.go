package staging

import (
	"os"
	"syscall"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

func TestPublishAndContinue(t *testing.T) {
	b := newBench(t)
	d := b.stage("first", 1, 8) // 2 attention pages and a recurrent one, 2 ranks
	b.usage(0, 6)
	if n := b.fill(d); n != 6 {
		t.Fatalf("%d pages were missing, want 6", n)
	}
	b.usage(6, 0)
	g := b.publish(d)
	b.noStagings()
	if got := b.ident.Generation(g.Name); got != g {
		t.Fatal("the generation is not there by its name")
	}

	// What continues it has its history already.
	d = b.stage("second", 1, 12)
	b.usage(6, 4)
	if n := b.fill(d); n != 4 {
		t.Fatalf("%d pages were missing in the continuation, want 4", n)
	}
	b.publish(d)
	b.usage(10, 0)
	if n := b.files(); n != 10 {
		t.Fatalf("%d page files, want 10", n)
	}
}

func TestExactReplayWritesNothing(t *testing.T) {
	b := newBench(t)
	d := b.stage("first", 1, 8)
	b.fill(d)
	b.publish(d)
	d = b.stage("again", 1, 8)
	if n := b.fill(d); n != 0 {
		t.Fatalf("%d pages were missing in a replay", n)
	}
	_, err := d.Publish(d.mu.content.derived.Name, b.nextOp(), nil)
	wantErrno(t, err, syscall.EEXIST)
	b.must(d.Discard())
	b.usage(6, 0)
	b.noStagings()
}

func TestPublishRefuses(t *testing.T) {
	b := newBench(t)
	d, err := b.Create(b.ident, "x", index.Attr{}, b.nextOp())
	b.must(err)
	_, err = d.Publish("anything", 0, nil)
	wantErrno(t, err, syscall.EINVAL)
	b.must(d.Discard())

	d = b.stage("x", 1, 8)
	name := d.mu.content.derived.Name
	_, err = d.Publish("00000008-prompt-0000000000000000000000000000000000000000", 0, nil)
	wantErrno(t, err, syscall.EINVAL)
	_, err = d.Publish(name, 0, nil)
	wantErrno(t, err, syscall.EBUSY)

	slots := b.missing(d)
	for _, s := range slots[1:] {
		b.must(b.writePage(d, s, pageBytes))
	}
	p, page := place(d, slots[0])
	_, f, err := d.CreatePage(t.Context(), p, page, Owner{Mode: 0o644}, b.nextOp())
	b.must(err)
	defer f.Close()
	_, err = f.Write(make([]byte, pageBytes))
	b.must(err)
	_, err = d.Publish(name, 0, nil)
	wantErrno(t, err, syscall.EBUSY) // its writer is still there
	if d.ErrorText() == "" {
		t.Fatal("the refusal has no reason")
	}
	_, err = f.Write([]byte{1})
	b.must(err)
	b.must(f.Close())
	_, err = d.Publish(name, 0, nil)
	wantErrno(t, err, syscall.EINVAL) // one byte too long
}

// TestBeingMade: between the daemon's descriptor of a new page and its client's
// there is none. Whoever looks at the staging meanwhile leaves the page there.
func TestBeingMade(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	slots := b.missing(d)
	p, name := place(d, slots[0])
	id, f, err := d.CreatePage(t.Context(), p, name, Owner{Mode: 0o644}, b.nextOp())
	b.must(err)
	b.must(f.Close())
	look := func() pages.ID {
		t.Helper()
		_, err = d.Publish(d.mu.content.derived.Name, 0, nil)
		wantErrno(t, err, syscall.EBUSY)
		b.missing(d)
		e, err := d.Lookup(p, name)
		if err != nil {
			wantErrno(t, err, syscall.ENOENT)
		}
		return e.Page.ID
	}
	if got := look(); got != id {
		t.Errorf("page %d was made, %d is there", id, got)
	}
	d.m.Live.Open(id, pageBytes)
	d.m.Opened(id)
	if got := look(); got != id {
		t.Errorf("page %d is open, %d is there", id, got)
	}
	d.m.Live.Close(id) // and nothing written
	if got := look(); got != 0 {
		t.Errorf("page %d was left by its writer and is still there", got)
	}
}

// TestTwoCopies: two stagings write the same pages at the same time; both
// publish what they have, one copy of each page is kept.
func TestTwoCopies(t *testing.T) {
	b := newBench(t)
	short, long := b.stage("short", 1, 8), b.stage("long", 1, 12)
	for _, d := range []*Draft{short, long} {
		for s := range d.Layout().Total() {
			if err := b.writePage(d, s, pageBytes); err != nil {
				wantErrno(t, err, syscall.EEXIST) // the other's is complete already: found by its key
			}
		}
	}
	b.publish(short)
	b.publish(long)
	b.usage(10, 0)
	if n := b.files(); n != 10 {
		t.Fatalf("%d page files, want 10", n)
	}
}

func TestAbandonedPageIsAbsent(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	slots := b.missing(d)
	b.must(b.writePage(d, slots[0], 100))
	p, name := place(d, slots[0])
	if _, err := d.Lookup(p, name); err == nil {
		t.Fatal("a short page whose writer is gone is still there")
	}
	b.must(b.writePage(d, slots[0], pageBytes))
	if _, err := d.Lookup(p, name); err != nil {
		t.Fatal(err)
	}
	b.usage(1, 5)
	wantErrno(t, b.writePage(d, slots[0], pageBytes), syscall.EEXIST)
}

func TestTooLargeAndFull(t *testing.T) {
	b := newBench(t)
	d, err := b.Create(b.ident, "large", index.Attr{}, b.nextOp())
	b.must(err)
	b.write(d, EntryTokens, tokens(1, 4000))
	b.write(d, EntryManifest, []byte(manifest(4000, "large")))
	wantErrno(t, d.Accept(t.Context()), syscall.ENOSPC)
	b.usage(0, 0)
	if _, err := os.Stat(d.FilePath(EntryManifest)); err == nil {
		t.Fatal("the manifest that could not be had room for is kept")
	}
	b.must(d.Discard())

	b.stage("one", 1, 400)
	d, err = b.Create(b.ident, "two", index.Attr{}, b.nextOp())
	b.must(err)
	b.write(d, EntryTokens, tokens(5000, 400))
	b.write(d, EntryManifest, []byte(manifest(400, "two")))
	wantErrno(t, d.Accept(t.Context()), syscall.ENOSPC)
	b.usage(0, 2*101)
}

func TestTimeoutDiscards(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.fill(d)
	d.Hold()
	b.now = b.now.Add(2 * b.Timeout)
	if n := len(b.Reap()); n != 0 {
		t.Fatal("a staging that is held was discarded")
	}
	d.Unhold()
	if n := len(b.Reap()); n != 0 {
		t.Fatal("a staging was discarded before its timeout")
	}
	b.now = b.now.Add(2 * b.Timeout)
	if n := len(b.Reap()); n != 1 {
		t.Fatal("a staging was not discarded after its timeout")
	}
	b.noStagings()
	b.usage(0, 0)
	if n := b.files(); n != 0 {
		t.Fatalf("%d page files are left", n)
	}
}

func TestLimits(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"1", "2", "3", "4"} {
		_, err := b.Create(b.ident, name, index.Attr{}, b.nextOp())
		b.must(err)
	}
	_, err := b.Create(b.ident, "5", index.Attr{}, b.nextOp())
	wantErrno(t, err, syscall.EAGAIN)
	d, _ := b.ByName(b.ident.ID, "1")
	b.must(d.Discard())
	_, err = b.Create(b.ident, "2", index.Attr{}, b.nextOp())
	wantErrno(t, err, syscall.EEXIST)
	_, err = b.Create(b.ident, "5", index.Attr{}, b.nextOp())
	b.must(err)
}

// TestSettleLooksOnceMore: a release that is told of before the file itself is let
// go leaves its page to the next release.
func TestSettleLooksOnceMore(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	slots := b.missing(d)
	p, name := place(d, slots[0])
	late, f, err := d.CreatePage(t.Context(), p, name, Owner{Mode: 0o644}, b.nextOp())
	b.must(err)
	_, err = f.Write(make([]byte, pageBytes))
	b.must(err)
	b.Settle(late)
	b.must(f.Close())
	b.must(b.writePage(d, slots[1], pageBytes))
	next := d.pageRefs()[slots[1]]
	if ref := d.pageRefs()[slots[0]]; ref.Sealed() || next.Sealed() {
		t.Fatal("a page is complete before it was looked at without a writer")
	}
	b.Settle(next.ID)
	before := b.ram.Looks()
	if ref := d.pageRefs()[slots[0]]; !ref.Sealed() || !next.Sealed() {
		t.Fatal("not both pages are complete after the second release")
	}
	b.Settle(next.ID)
	if n := b.ram.Looks() - before; n != 0 {
		t.Fatalf("%d further looks, want none", n)
	}
}
