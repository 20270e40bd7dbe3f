package index

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"ckptfs/pages"
)

// TestReadersBesideTheWriter reads in every way while generations come and go:
// nobody sees half of one.
func TestReadersBesideTheWriter(t *testing.T) {
	x := newStore(t)
	x.pages, x.contents = newPageCache(1), newContentsCache(2, 1<<20)
	i := newIdentity(t, x, "")
	root := publish(t, x, i, draft{tokens: repeated(300, 0)})
	held := must(x.Page(must(x.Contents(root)).Pages[0]))
	tokens := repeated(2000, 0)

	stop := make(chan struct{})
	var readers sync.WaitGroup
	reader := func(f func() error) {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	reader(func() error {
		res := x.Find(i, &FindRequest{NumTokens: 2000, Tokens: tokens}, nil)
		if g := res.Generation; g == nil || i.Generation(g.Name) != g && !g.Retired() {
			return fmt.Errorf("found %v", res)
		}
		return nil
	})
	// The row is gone a moment before the generation is.
	retired := func(g *Generation) bool {
		x.undisturbed(func() error { return nil })
		return g.Retired()
	}
	reader(func() error {
		for _, g := range i.Generations(0, 100) {
			c, err := x.Contents(g)
			if errors.Is(err, ErrNotExist) && retired(g) {
				continue
			}
			if err != nil {
				return err
			}
			for _, id := range c.Pages {
				if _, err := x.Page(id); err != nil && !retired(g) {
					return err
				}
			}
		}
		return nil
	})
	reader(func() error {
		if p, err := x.Page(held.ID); err != nil || p != held || p.Links() < 1 {
			return fmt.Errorf("page %v: %v", p, err)
		}
		return nil
	})
	reader(func() error {
		return x.EachPage(func(r PageRow) error {
			p, ok, err := x.PageByKey(r.Key)
			if err == nil && ok && p.Key != r.Key {
				err = fmt.Errorf("key %v finds %v", r.Key, p)
			}
			return err
		})
	})
	reader(func() error { x.Touch(root, root.Used()+1); return x.FlushTouched() })
	reader(x.Checkpoint)

	for n := range 60 {
		g := publish(t, x, i, draft{tokens: tokens[:(301+n*20)*tokenBytes]})
		if n%3 > 0 {
			gs := i.Generations(root.ID, 3)
			if !slices.Contains(gs, g) {
				gs = append(gs, g)
			}
			must(x.Retire(gs[:1], "for a test", int64(n), 0, nil))
		}
	}
	close(stop)
	readers.Wait()
	must(x.Retire(i.Generations(root.ID, 100), "for a test", 1, 0, nil))
	if held.Links() != 1 {
		t.Errorf("%d links", held.Links())
	}
}

// TestRowsReadBeforeACommit has a commit come between reading a page's row and
// putting it into the cache.
func TestRowsReadBeforeACommit(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(600, 0)})
	id := must(x.Contents(g)).Pages[0]
	other := &Page{ID: id} // not the cache's
	other.set(Attr{})
	changes := map[string]func(){
		"links":      func() { publish(t, x, i, draft{tokens: repeated(700, 0)}) },
		"attributes": func() { must(0, x.SetPageAttr(other, func(Attr) Attr { return Attr{UID: 3} })) },
		"retired":    func() { must(x.Retire(i.Generations(g.ID, 9), "for a test", 1, 0, nil)) },
		"dropped":    func() { must(x.Retire([]*Generation{g}, "for a test", 1, 0, nil)) },
	}
	for _, name := range []string{"links", "attributes", "retired", "dropped"} {
		x.pages = newPageCache(1)
		var row PageRow
		must(0, x.EachPage(func(r PageRow) error {
			if r.ID == id {
				row = r
			}
			return nil
		}))
		before := x.pages.epochs([]pages.ID{id})[0]
		changes[name]()
		x.pages.forget(id)
		if p := x.pages.insert(&row, before); p != nil {
			t.Errorf("%s: the old row was taken: %+v", name, p)
		}
	}
	if _, err := x.Page(id); !errors.Is(err, ErrNotExist) {
		t.Errorf("the dropped page: %v", err)
	}
}

// forget takes a page out as if nobody had held it.
func (c *pageCache) forget(id pages.ID) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pages, id)
}
