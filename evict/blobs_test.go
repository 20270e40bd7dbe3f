package evict

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

// TestBlobOfTwoRetirements: where two retire a generation and one of them comes to
// nothing, no blob is written before the other has ended.
func TestBlobOfTwoRetirements(t *testing.T) {
	s := newStore(t, 40*storePage)
	g := s.publish(1, 8)
	s.Flush(context.Background())
	s.must(s.idx.SetPin(g, true, 0))
	gs := []*index.Generation{g}
	other := s.Retiring(gs)
	done := s.Retiring(gs)
	_, err := s.idx.RetireUnpinned(gs, "a test", 1, nil)
	s.must(err)
	done()
	s.sweepBlobs(context.Background(), 100)
	r, err := s.idx.Retire(gs, "a test", 1, 0, s.Live.Keep)
	s.must(err)
	other()
	for _, p := range r.Dropped {
		s.Live.Dead(p)
	}
	s.Retired(g.ID)
	s.check()
}

// TestChangedWhileItsBlobIsWritten: attributes that are set while the blob is being
// written are in it after the next look.
func TestChangedWhileItsBlobIsWritten(t *testing.T) {
	s := newStore(t, 40*storePage)
	g := s.publish(1, 8)
	rows, err := s.rowsOf(g)
	s.must(err)
	s.must(s.Save(context.Background(), rows))
	a := g.Attr()
	a.Mode = 0o700
	var once sync.Once
	s.steps.hold = func(pages.Step) {
		once.Do(func() { s.must(s.idx.SetGenerationAttr(g, func(index.Attr) index.Attr { return a })) })
	}
	s.sweepBlobs(context.Background(), 100)
	s.steps.hold = nil
	s.sweepBlobs(context.Background(), 100)
	raw, err := s.disk.ReadBlob(index.BlobName(g))
	s.must(err)
	b, err := s.idx.ParseBlob(raw)
	s.must(err)
	if b.Attr != a || !g.HasBlob() {
		t.Errorf("the blob says %+v, the generation is %+v (%v)", b.Attr, a, g.HasBlob())
	}
	s.check()
}

// TestBlobOfAStop: a stop while a blob is being written is no failure of it.
func TestBlobOfAStop(t *testing.T) {
	s := newStore(t, 40*storePage)
	g := s.publish(1, 8)
	rows, err := s.rowsOf(g)
	s.must(err)
	s.must(s.Save(context.Background(), rows))
	var said bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&said, nil))
	ctx, stop := context.WithCancel(context.Background())
	s.steps.hold = func(pages.Step) { stop() }
	s.sweepBlobs(ctx, 100)
	s.steps.hold = nil
	if g.HasBlob() || said.Len() > 0 {
		t.Errorf("blob %v, said %q", g.HasBlob(), said.String())
	}
	s.sweepBlobs(context.Background(), 100)
	if !g.HasBlob() {
		t.Error("it is not tried again")
	}
	s.check()
}

// TestRetiredWithAStaleBlob: a generation whose attributes were set, and that is
// retired before its blob is written again, leaves none.
func TestRetiredWithAStaleBlob(t *testing.T) {
	s := newStore(t, 40*storePage)
	g := s.publish(1, 8)
	s.Flush(context.Background())
	if !g.HasBlob() {
		t.Fatal("no blob")
	}
	s.must(s.idx.SetGenerationAttr(g, func(a index.Attr) index.Attr { a.Mode = 0o700; return a }))
	s.must(s.retire([]*index.Generation{g}, "a test"))
	if _, err := s.disk.ReadBlob(index.BlobName(g)); !errors.Is(err, pages.ErrAbsent) {
		t.Errorf("the blob of what is retired: %v", err)
	}
	s.check()
}
