package evict

import (
	"context"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

// TestSavedAndNotPublished: pages that were made durable for a publication which
// then failed leave nothing in either tier when their staging goes; those of one
// that was published stay.
func TestSavedAndNotPublished(t *testing.T) {
	s := newStore(t, 40*storePage)
	empty := s.disk.Usage().ContentBytes()
	p := &index.Publication{}
	key := pages.Key{1, 2, 3}
	id := s.newPage(p, key, 0)
	s.Live.Stage(id, storePage)
	s.must(s.SaveUnpublished(context.Background(), []Unpublished{{ID: id, Key: key, Bytes: storePage}}))
	if there, err := s.disk.Has(key); !there {
		t.Fatal("the page was not written: ", err)
	}
	s.Live.Unref(id)
	s.quiet()
	if there, err := s.disk.Has(key); there || err != nil {
		t.Error("its object is left ", err)
	}
	if u := s.disk.Usage(); u.ContentBytes() != empty {
		t.Errorf("the disk tier holds %d bytes, %d before", u.ContentBytes(), empty)
	}
	g := s.publish(1, 4)
	if rows, err := s.rowsOf(g); err == nil {
		s.must(s.SaveGeneration(context.Background(), g, rows))
	}
	s.check()
}
