package evict

import (
	"errors"
	"os"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

const testPage = 8192

// newLive makes a table over an empty RAM tier.
func newLive(t *testing.T) (*Live, *Budget, *pages.RAM) {
	t.Helper()
	ram, err := pages.OpenRAM(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ram.Close() })
	b := NewBudget(1 << 20)
	return NewLive(ram, b), b, ram
}

// put makes a page file that is charged.
func put(t *testing.T, b *Budget, ram *pages.RAM, id pages.ID) {
	t.Helper()
	f, err := ram.Create(id, testPage)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	b.Hold(Charge(testPage))
}

func wantFile(t *testing.T, ram *pages.RAM, id pages.ID, want bool) {
	t.Helper()
	_, err := ram.Stat(id)
	if there := err == nil; there != want || err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("page file there: %v (%v), want %v", there, err, want)
	}
}

func TestStagedPageGoesWithItsLastStaging(t *testing.T) {
	l, b, ram := newLive(t)
	put(t, b, ram, 1)
	l.Stage(1, testPage)
	if !l.Ref(1, testPage) {
		t.Fatal("a staged page cannot be linked by another staging")
	}
	if last, drop := l.Unref(1); last || drop {
		t.Fatalf("last %v, drop row %v after the first of two", last, drop)
	}
	wantFile(t, ram, 1, true)
	if last, drop := l.Unref(1); !last || drop {
		t.Fatalf("last %v, drop row %v after the second of two", last, drop)
	}
	wantFile(t, ram, 1, false)
	wantUsage(t, b, 0, 0)
}

func TestOpenPageKeepsItsBytes(t *testing.T) {
	l, b, ram := newLive(t)
	put(t, b, ram, 1)
	l.Stage(1, testPage)
	if !l.Open(1, testPage) {
		t.Fatal("a staged page cannot be opened")
	}
	l.Unref(1)
	wantFile(t, ram, 1, true)
	if l.Ref(1, testPage) {
		t.Fatal("a page that nothing has any more was linked")
	}
	l.Close(1)
	wantFile(t, ram, 1, false)
}

// TestLastLinkGoes: a page whose last link goes is kept for a staging, or dies,
// and a dying page can be neither linked nor opened.
func TestLastLinkGoes(t *testing.T) {
	for name, c := range map[string]struct{ held, fails bool }{
		"free": {}, "held by a staging": {held: true}, "transaction fails": {fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			l, b, ram := newLive(t)
			put(t, b, ram, 1)
			if c.held && !l.Ref(1, testPage) {
				t.Fatal("a published page cannot be linked")
			}
			if kept := l.Keep(1); kept != c.held {
				t.Fatalf("kept %v, want %v", kept, c.held)
			}
			if !c.held && (l.Ref(1, testPage) || l.Open(1, testPage)) {
				t.Fatal("a dying page was linked or opened")
			}
			switch {
			case c.fails:
				l.Revive(1)
				if !l.Ref(1, testPage) {
					t.Fatal("a page whose transaction failed is not there any more")
				}
				wantFile(t, ram, 1, true)
			case c.held:
				if last, drop := l.Unref(1); !last || !drop {
					t.Fatalf("last %v, drop row %v when the staging lets go", last, drop)
				}
				fallthrough
			default:
				l.Dead(&index.Page{ID: 1, Bytes: testPage})
				wantFile(t, ram, 1, false)
				wantUsage(t, b, 0, 0)
			}
		})
	}
}

func TestPublishedPageIsForgotten(t *testing.T) {
	l, b, ram := newLive(t)
	put(t, b, ram, 1)
	l.Stage(1, testPage)
	l.Publish(1)
	if last, drop := l.Unref(1); !last || drop {
		t.Fatalf("last %v, drop row %v", last, drop)
	}
	wantFile(t, ram, 1, true)
	if n := len(l.shard(1).pages); n != 0 {
		t.Fatalf("%d entries are left for pages that nobody holds", n)
	}
}

func TestScratchCountsWhenItIsPlaced(t *testing.T) {
	l, b, ram := newLive(t)
	put(t, b, ram, 1)
	l.Stage(1, 0)
	l.Grow(1, testPage)
	l.Unref(1)
	wantUsage(t, b, 0, 0)
}
