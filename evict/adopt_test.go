package evict

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// TestAdoptBesideTheService: with very many page files in RAM a start does not
// look at them first. Meanwhile pages are read, evicted, brought back, published
// and removed; nothing is lost, and the accounting is exact in the end.
func TestAdoptBesideTheService(t *testing.T) {
	noStaged := func(pages.ID) bool { return false }
	for round := range 8 {
		s := newStore(t, 64<<20)
		s.kill()
		ram := filepath.Join(s.dir, "ram")
		if err := pages.MountRAM(ram, 128<<20, false); err != nil {
			t.Skip("no tmpfs can be mounted here: ", err)
		}
		s.open()
		s.idle = true // the test takes up what is there itself
		var gs []*index.Generation
		for c := range 40 {
			gs = append(gs, s.publish(c, 40))
		}
		s.MakeRoom(context.Background(), 100*storePage) // some are on disk only
		orphan := pages.ID(s.idx.NextID())
		f, err := s.ram.Create(orphan, storePage)
		s.must(err)
		s.must(f.Close())
		s.kill()
		s.open()
		_, err = s.disk.Recount(context.Background())
		s.must(err)
		done, err := s.AdoptRAM(0, noStaged)
		s.must(err)
		if done {
			t.Fatal("all was taken up at once")
		}
		held, _ := s.Budget.Usage()
		if held == 0 {
			t.Error("nothing is charged for what is not looked at yet")
		}
		var wg sync.WaitGroup
		wg.Go(func() { s.must(s.AdoptRest(context.Background(), noStaged)) })
		wg.Go(func() {
			for c := range 10 {
				s.publish(100+c, 20)
			}
		})
		wg.Go(func() {
			for _, g := range gs[round : round+15] {
				s.must(s.retire([]*index.Generation{s.idx.GenerationByID(g.ID)}, "for a test"))
			}
		})
		wg.Go(func() {
			for _, g := range gs[25:] {
				ids, err := s.idx.PageIDs(s.idx.GenerationByID(g.ID))
				s.must(err)
				rows, err := s.idx.Pages(ids)
				s.must(err)
				for _, p := range rows {
					s.must(s.read(p))
					if p.Disk() != 0 {
						s.evictCopy(p.ID, s.Live.Leased)
					}
				}
			}
		})
		wg.Wait()
		lost, err := s.LostInRAM(true)
		s.must(err)
		if len(lost) != 0 {
			t.Errorf("%d pages are said to be lost", len(lost))
		}
		s.Learn(context.Background())
		if n, err := s.readAll(); err != nil || n != 35 {
			t.Errorf("%d generations can be read, want 35: %v", n, err)
		}
		if _, err := s.ram.Stat(orphan); err == nil {
			t.Error("a file that nothing needs is left")
		}
		s.quiet()
		s.sweepBlobs(context.Background(), 1000)
		s.check()
		s.kill()
		s.must(pages.UnmountRAM(ram, false))
	}
}

// quiet waits until what is mapped or open no more has been given back.
func (s *store) quiet() {
	for end := time.Now().Add(5 * time.Second); s.releaseKept() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// TestAdoptionFails: if files in RAM cannot be looked at, a shutdown writes what
// is known, and does not wait for the others.
func TestAdoptionFails(t *testing.T) {
	noStaged := func(pages.ID) bool { return false }
	s := newStore(t, 1<<20)
	s.kill()
	ram := filepath.Join(s.dir, "ram")
	if err := pages.MountRAM(ram, 128<<20, false); err != nil {
		t.Skip("no tmpfs can be mounted here: ", err)
	}
	defer func() { s.kill(); s.must(pages.UnmountRAM(ram, false)) }()
	s.open()
	s.idle = true
	s.publish(1, 8)
	s.kill()
	s.open()
	if done, err := s.AdoptRAM(0, noStaged); done || err != nil {
		t.Fatal("all was taken up at once: ", err)
	}
	s.must(os.Rename(filepath.Join(ram, "p", "ff"), filepath.Join(ram, "away")))
	if s.AdoptRest(context.Background(), noStaged) == nil {
		t.Fatal("a directory that is not there could be looked at")
	}
	s.publish(2, 8)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if f := s.Flush(ctx); f.Pages != 6 || f.Left != 0 {
		t.Errorf("%d pages were written, %d left", f.Pages, f.Left)
	}
}
