package evict

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

// lookAgain makes a pass, in sweeps of max generations, as after a page has come to
// disk. It returns how many page lists that has read.
func (s *store) lookAgain(max int) (lists int64) {
	before := s.blobs.lists.Load()
	s.noteBlobs()
	s.finishPass(max)
	return s.blobs.lists.Load() - before
}

// finishPass goes on with the pass under way, or makes one if there is none.
func (s *store) finishPass(max int) {
	for begun := false; !begun || !s.blobs.sweep.over(); begun = true {
		s.sweepBlobs(context.Background(), max)
	}
}

// rest is a sweep that must find nothing to do.
func (s *store) rest() {
	s.t.Helper()
	before := s.blobs.lists.Load()
	s.sweepBlobs(context.Background(), 100)
	if n := s.blobs.lists.Load() - before; n != 0 {
		s.t.Errorf("a sweep read %d page lists though nothing had happened", n)
	}
}

// remembered is the page that the sweep remembers of a generation; nil if it knows
// of none.
func (s *store) remembered(g *index.Generation) *index.Page {
	s.t.Helper()
	for _, b := range s.blobs.sweep.found {
		if b.id == g.ID && b.lacks != 0 {
			p, err := s.idx.Page(b.lacks)
			s.must(err)
			return p
		}
	}
	return nil
}

// dropCopy removes the RAM copy of a page that is on disk.
func (s *store) dropCopy(p *index.Page) {
	s.t.Helper()
	if !s.evictCopy(p.ID, func(pages.ID) bool { return false }) {
		s.t.Fatalf("page %d does not leave RAM", p.ID)
	}
}

// bad has the disk lose a page that is in RAM too.
func (s *store) bad(p *index.Page) {
	s.t.Helper()
	s.must(s.disk.Remove(p.Key))
	_, err := s.setDisk([]index.DiskChange{{ID: p.ID}})
	s.must(err)
}

// TestPassesOverWhatIsOnlyInRAM: the page list of a generation that is not whole is
// read once, however many passes there are and in however many sweeps.
func TestPassesOverWhatIsOnlyInRAM(t *testing.T) {
	s := newStore(t, 100*storePage)
	const n = 7
	for c := range n {
		s.publish(c, 8)
	}
	if lists := s.lookAgain(3); lists != n {
		t.Errorf("the first pass read %d page lists, want %d", lists, n)
	}
	for _, max := range []int{3, 1, n, 100} {
		if lists := s.lookAgain(max); lists != 0 {
			t.Errorf("a pass in sweeps of %d read %d page lists again", max, lists)
		}
	}
	s.rest()
	s.publish(n, 8)
	if lists := s.lookAgain(3); lists != 1 {
		t.Errorf("a pass over one new generation read %d page lists", lists)
	}
	s.check()
}

// TestRememberedPageComesToDisk, as the first of its generation's pages and as the
// last, with its RAM copy kept and dropped: the blob is there at once when the last
// has come. A page list is read only when the remembered page has come to disk.
func TestRememberedPageComesToDisk(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, drop bool
	}{{"first", true, false}, {"last", false, false}, {"last, and RAM drops it", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, 100*storePage)
			g := s.publish(1, 16)
			other := s.publish(2, 16)
			s.lookAgain(100)
			ctx := context.Background()
			rows, err := s.rowsOf(g)
			s.must(err)
			for len(rows) > 0 {
				i := slices.IndexFunc(rows, func(p *index.Page) bool { return (p == s.remembered(g)) == c.first })
				i = max(i, 0) // only the one remembered is left
				p, was := rows[i], s.remembered(g)
				rows = slices.Delete(rows, i, i+1)
				s.must(s.Save(ctx, []*index.Page{p}))
				if c.drop {
					s.dropCopy(p)
				}
				want := int64(0)
				if p == was {
					want = 1
				}
				if lists := s.lookAgain(100); lists != want {
					t.Errorf("%d page lists were read with %d pages to come, want %d", lists, len(rows), want)
				}
				if g.HasBlob() != (len(rows) == 0) {
					t.Errorf("blob: %v, with %d pages to come", g.HasBlob(), len(rows))
				}
			}
			if other.HasBlob() || len(s.blobs.sweep.found) != 1 {
				t.Errorf("blob of what is only in RAM: %v; %d are remembered, want that one", other.HasBlob(), len(s.blobs.sweep.found))
			}
			s.check()
		})
	}
}

// TestRememberedPageIsBad: one that came to disk and was found bad before the next
// look still is not there.
func TestRememberedPageIsBad(t *testing.T) {
	s := newStore(t, 100*storePage)
	g := s.publish(1, 8)
	s.lookAgain(100)
	ctx := context.Background()
	rows, err := s.rowsOf(g)
	s.must(err)
	p := s.remembered(g)
	s.must(s.Save(ctx, rows))
	s.bad(p)
	if lists := s.lookAgain(100); lists != 0 || g.HasBlob() {
		t.Errorf("%d page lists were read; blob: %v", lists, g.HasBlob())
	}
	s.must(s.Save(ctx, []*index.Page{p}))
	s.sweepBlobs(ctx, 100)
	if !g.HasBlob() {
		t.Error("no blob when it was written again")
	}
	s.check()
}

// TestForgottenBySweeps: nothing is remembered of generations that have gone or
// have their blobs.
func TestForgottenBySweeps(t *testing.T) {
	s := newStore(t, 100*storePage)
	gs := []*index.Generation{s.publish(1, 8), s.publish(2, 8), s.publish(3, 8)}
	s.lookAgain(100)
	s.must(s.retire(gs[:1], "a test"))
	s.lookAgain(100)
	if s.remembered(gs[1]) == nil || len(s.blobs.sweep.found) != 2 {
		t.Errorf("%d are remembered, want 2", len(s.blobs.sweep.found))
	}
	s.Flush(context.Background())
	s.lookAgain(100)
	if n := cap(s.blobs.sweep.found); n != 0 {
		t.Errorf("there is memory for %d, want none", n)
	}
	s.check()
}

// TestPublishedWhole: a generation whose pages are all on disk at its publication
// gets its blob though no page comes to disk, whether a pass is under way or not.
func TestPublishedWhole(t *testing.T) {
	s := newStore(t, 100*storePage)
	for c := range 3 {
		s.publish(c, 8)
	}
	s.Flush(context.Background())
	s.publish(3, 8)
	s.publish(4, 8)
	s.lookAgain(100)
	one := s.publishAs(index.KindResponse, 1, 8)
	s.sweepBlobs(context.Background(), 1)
	other := s.publishAs(index.KindResponse, 2, 8)
	s.finishPass(1)
	s.finishPass(1)
	if !one.HasBlob() || !other.HasBlob() {
		t.Errorf("blobs: %v, %v", one.HasBlob(), other.HasBlob())
	}
	s.check()
}

// TestChangesAmidAPass: what is retired, published, made stale, and found to have
// lost its blob while a pass is under way, is as it should be after the next one.
func TestChangesAmidAPass(t *testing.T) {
	s := newStore(t, 100*storePage)
	ctx := context.Background()
	var gs []*index.Generation
	for c := range 6 {
		gs = append(gs, s.publish(c, 8))
	}
	s.Flush(ctx) // they have their blobs
	for c := range 4 {
		gs = append(gs, s.publish(10+c, 8))
	}
	s.lookAgain(100)
	for _, g := range gs[6:] {
		rows, err := s.rowsOf(g)
		s.must(err)
		s.must(s.Save(ctx, rows))
	}
	s.sweepBlobs(ctx, 1)
	s.must(s.retire(gs[8:9], "a test"))
	late := s.publishAs(index.KindResponse, 1, 8) // no page of it comes to disk
	s.must(s.idx.SetGenerationAttr(gs[0], func(a index.Attr) index.Attr { a.Mode = 0o700; return a }))
	s.must(s.disk.RemoveBlob(index.BlobName(gs[2])))
	s.must(s.Reconcile(ctx, false))
	done := s.Retiring(gs[3:4]) // comes to nothing
	s.sweepBlobs(ctx, 1)
	done()
	s.finishPass(1)
	s.finishPass(1)
	for n, g := range append(gs, late) {
		if g.HasBlob() == g.Retired() {
			t.Errorf("generation %d: blob %v, retired %v", n, g.HasBlob(), g.Retired())
		}
	}
	s.rest()
	s.check()
}

// TestRandomSweeps: whatever happens between sweeps, in the end exactly the
// generations that are whole on disk have blobs.
func TestRandomSweeps(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	s := newStore(t, 400*storePage)
	ctx := context.Background()
	var gs []*index.Generation
	for c := range 4 {
		gs = append(gs, s.publish(c, 8))
	}
	for step := range 400 {
		i := r.IntN(len(gs))
		rows, err := s.rowsOf(gs[i])
		s.must(err)
		p := rows[r.IntN(len(rows))]
		switch n := r.IntN(20); {
		case n < 8:
			s.must(s.Save(ctx, []*index.Page{p}))
		case n < 10 && p.Disk() != 0 && s.InRAM(p.ID):
			s.bad(p)
		case n == 10 && len(gs) < 12:
			gs = append(gs, s.publish(step+4, 4+4*r.IntN(4)))
		case n == 11 && len(gs) > 2:
			s.must(s.retire(gs[i:i+1], "a test"))
			gs = slices.Delete(gs, i, i+1)
		case n == 12:
			s.must(s.idx.SetGenerationAttr(gs[i], func(a index.Attr) index.Attr { a.Mtime++; return a }))
		case n == 13:
			s.Retiring(gs[i : i+1])()
		case n == 14 && p.Disk() != 0 && s.InRAM(p.ID):
			s.dropCopy(p)
		case n < 19:
			s.sweepBlobs(ctx, 1+r.IntN(3))
		}
		if step%50 < 49 {
			continue
		}
		s.finishPass(3)
		s.finishPass(3)
		s.rest()
		for _, g := range gs {
			rows, err := s.rowsOf(g)
			s.must(err)
			if whole := notOnDisk(rows) < 0; whole && !g.HasBlob() {
				t.Fatalf("step %d: %s is whole on disk and has no blob", step, g.Name)
			}
		}
		s.check()
	}
}

// TestSweepGoesOnAfterAFailure: a generation whose blob cannot be written keeps no
// other from its own.
func TestSweepGoesOnAfterAFailure(t *testing.T) {
	s := newStore(t, 100*storePage)
	var gs []*index.Generation
	for c := range 3 {
		gs = append(gs, s.publish(c, 8))
		rows, err := s.rowsOf(gs[c])
		s.must(err)
		s.must(s.Save(context.Background(), rows))
	}
	// Something else is where its blob would be.
	s.must(s.disk.PutBlob(context.Background(), index.BlobName(gs[0]), []byte("x"), false))
	in := s.blobPath(gs[0])
	s.must(s.disk.RemoveBlob(index.BlobName(gs[0])))
	s.must(os.MkdirAll(filepath.Join(in, "x"), 0o700))
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 * len(gs) {
		s.sweepBlobs(context.Background(), 1)
	}
	if n := bytes.Count(log.Bytes(), []byte("\n")); n != 1 {
		t.Errorf("it is told %d times: %s", n, &log)
	}
	if gs[0].HasBlob() || !gs[1].HasBlob() || !gs[2].HasBlob() {
		t.Errorf("blobs are there: %v, %v, %v", gs[0].HasBlob(), gs[1].HasBlob(), gs[2].HasBlob())
	}
	s.must(os.RemoveAll(in))
	s.finishPass(1)
	s.finishPass(1)
	if !gs[0].HasBlob() {
		t.Error("it is not tried again")
	}
	s.check()
}

// blobPath is the file of a generation's blob.
func (s *store) blobPath(g *index.Generation) (path string) {
	s.t.Helper()
	s.must(filepath.WalkDir(s.disk.Dir(), func(p string, _ fs.DirEntry, err error) error {
		if filepath.Base(p) == index.BlobName(g) {
			path = p
		}
		return err
	}))
	return path
}
