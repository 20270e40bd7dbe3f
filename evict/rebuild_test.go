package evict

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// flushed makes a store with generations of which all are on disk, the longer
// ones with pages in common, and one that was retired.
func flushed(t *testing.T) *store {
	s := newStore(t, 100*storePage)
	gone := s.publish(9, 12)
	for c := range 3 {
		s.publish(c, 10)
		s.publish(c, 18)
	}
	s.Flush(context.Background())
	s.must(s.retire([]*index.Generation{gone}, "for a test"))
	s.check()
	return s
}

// describe says everything of the index that a rebuild must bring back.
func (s *store) describe() []string {
	var all []string
	s.must(s.idx.EachGeneration(func(g *index.Generation) error {
		i := g.Identity
		dir := i.Attr()
		dir.Mtime = 0 // a later retirement has moved it
		c, err := s.idx.Contents(g)
		s.must(err)
		line := fmt.Sprintf("%q %d %v|%s %d %v %v|%d %s %v %v %d %q %v|%v|%s|", i.Model.Name, i.Model.ID, i.Model.Attr(),
			i.Name, i.ID, dir, i.DocumentAttr(), g.ID, g.Name, g.Attr(), s.idx.SubAttrs(g), g.Published, g.Request, g.TailHash, c.Pages, c.Manifest)
		rows, err := s.idx.Pages(c.Pages)
		s.must(err)
		for _, p := range rows {
			line += fmt.Sprint(p.ID, p.Key, p.Bytes, p.Links(), p.Disk(), p.Attr())
		}
		all = append(all, line)
		return nil
	}))
	slices.Sort(all)
	return all
}

// rebuild replaces the index as the filesystem does.
func (s *store) rebuild() Rebuilt {
	s.t.Helper()
	path := filepath.Join(s.dir, "index.db")
	_, err := index.SetAside(path, time.Now())
	s.must(err)
	x, err := index.Open(path, index.Options{})
	s.must(err)
	r, err := Rebuild(context.Background(), x, s.disk, slog.New(slog.DiscardHandler))
	s.must(err)
	s.must(x.Close())
	s.open()
	return r
}

func TestRebuild(t *testing.T) {
	s := flushed(t)
	want := s.describe()
	s.kill()
	if r := s.rebuild(); r.Generations != 6 || r.Left() != 0 {
		t.Errorf("rebuilt: %+v", r)
	}
	if got := s.describe(); !slices.Equal(got, want) {
		t.Errorf("after the rebuild:\n%s\nbefore:\n%s", got, want)
	}
	s.check()
	if n, err := s.readAll(); n != 6 || err != nil {
		t.Errorf("%d generations can be read: %v", n, err)
	}
	// What is published now gets ids that nothing has.
	s.publish(7, 10)
	s.Flush(context.Background())
	s.check()
}

// TestRebuildWithoutAPage leaves out what has lost a page, and keeps all objects.
func TestRebuildWithoutAPage(t *testing.T) {
	s := flushed(t)
	var g *index.Generation
	s.must(s.idx.EachGeneration(func(x *index.Generation) error { g = x; return nil }))
	rows, err := s.rowsOf(g)
	s.must(err)
	last := rows[len(rows)-1] // its recurrent page, which no other has
	s.kill()
	s.must(os.Remove(s.disk.ObjectPath(last.Key)))
	if r := s.rebuild(); r.Generations != 5 || r.Holes != 1 {
		t.Errorf("rebuilt: %+v", r)
	}
	s.must(s.Reconcile(context.Background(), true))
	for _, p := range rows[:len(rows)-1] {
		if there, err := s.disk.Has(p.Key); !there || err != nil {
			t.Errorf("an object is gone after the rebuild: %v", err)
		}
	}
	if n, err := s.readAll(); n != 5 || err != nil {
		t.Errorf("%d generations can be read: %v", n, err)
	}
}

// TestOldCopyOfTheIndex tells one from the index.
func TestOldCopyOfTheIndex(t *testing.T) {
	s := flushed(t)
	s.kill()
	path := filepath.Join(s.dir, "index.db")
	old, err := os.ReadFile(path)
	s.must(err)
	s.open()
	s.publish(8, 10)
	s.Flush(context.Background())
	s.kill()
	x, err := index.Open(path, index.Options{})
	s.must(err)
	if stale, err := BeginTier(context.Background(), x, s.disk); stale || err != nil {
		t.Errorf("the index itself is stale: %v, %v", stale, err)
	}
	s.must(x.Close())
	s.must(os.WriteFile(path, old, 0o600))
	x, err = index.Open(path, index.Options{})
	s.must(err)
	if stale, err := BeginTier(context.Background(), x, s.disk); !stale || err != nil {
		t.Errorf("an old copy is stale: %v, %v", stale, err)
	}
	s.must(x.Close())
	if r := s.rebuild(); r.Generations != 7 {
		t.Errorf("rebuilt: %+v", r)
	}
	s.check()
}

// TestForgottenGeneration: an index that has lost its last transactions without
// looking old (its log is missing) gets back what the disk tier knows, and
// nothing that was retired.
func TestForgottenGeneration(t *testing.T) {
	s := flushed(t)
	s.must(s.idx.Checkpoint())
	path := filepath.Join(s.dir, "index.db")
	old, err := os.ReadFile(path)
	s.must(err)
	s.publish(8, 10)
	s.Flush(context.Background())
	want := s.describe()
	s.kill()
	s.must(os.WriteFile(path, old, 0o600))
	s.open()
	s.must(s.Reconcile(context.Background(), false))
	if got := s.describe(); !slices.Equal(got, want) {
		t.Errorf("the index knows again:\n%s\nwant:\n%s", got, want)
	}
	s.check()
	if n, err := s.readAll(); n != 7 || err != nil {
		t.Errorf("%d generations can be read: %v", n, err)
	}
}

// TestForgottenAndUnreadable: a disk that cannot say now whether it has the pages
// of a forgotten generation keeps nothing else from being compared, and nothing of
// it is removed.
func TestForgottenAndUnreadable(t *testing.T) {
	s := flushed(t)
	s.must(s.idx.Checkpoint())
	path := filepath.Join(s.dir, "index.db")
	old, err := os.ReadFile(path)
	s.must(err)
	s.publish(8, 10)
	s.Flush(context.Background())
	want := s.describe()
	s.kill()
	s.must(os.WriteFile(path, old, 0o600))
	s.open()
	opened := 0
	s.steps.hold = func(step pages.Step) {
		if step == pages.StepOpen {
			if opened++; opened == 2 { // the first is the blob
				s.steps.arm(1, syscall.EIO, false)
			}
		}
	}
	s.must(s.Reconcile(context.Background(), false))
	if got := s.describe(); len(got) == len(want) {
		t.Error("all could be read")
	}
	s.must(s.Reconcile(context.Background(), false))
	if got := s.describe(); !slices.Equal(got, want) {
		t.Errorf("the index knows again:\n%s\nwant:\n%s", got, want)
	}
	s.check()
}

// TestAnotherTier: a tier that is not the index's is refused.
func TestAnotherTier(t *testing.T) {
	s := flushed(t)
	s.kill()
	disk := filepath.Join(s.dir, "disk")
	s.must(os.Rename(disk, disk+".away"))
	s.must(os.Mkdir(disk, 0o700))
	x, err := index.Open(filepath.Join(s.dir, "index.db"), index.Options{})
	s.must(err)
	defer x.Close()
	id, _, err := x.Tier()
	s.must(err)
	if _, err := pages.OpenDisk(pages.DiskConfig{Dir: disk, TierID: id}); !errors.Is(err, pages.ErrTierChanged) {
		t.Errorf("an empty directory in the tier's place: %v", err)
	}
}

// TestRepair breaks a store in every way that Check knows, and has it repaired.
func TestRepair(t *testing.T) {
	s := flushed(t)
	var gs []*index.Generation
	s.must(s.idx.EachGeneration(func(g *index.Generation) error { gs = append(gs, g); return nil }))
	rows, err := s.rowsOf(gs[0])
	s.must(err)
	s.MakeRoom(context.Background(), 100*storePage)
	s.must(os.Truncate(s.disk.ObjectPath(rows[len(rows)-1].Key), 100))
	s.must(s.disk.RemoveBlob(index.BlobName(gs[1])))
	var key pages.Key
	key[0] = 0xab
	page := filepath.Join(s.dir, "page")
	s.must(os.WriteFile(page, pageOf(key), 0o600))
	f, err := os.Open(page)
	s.must(err)
	defer f.Close()
	_, err = s.disk.Put(context.Background(), key, f, storePage, false)
	s.must(err)
	findings, err := s.Check(context.Background(), nil)
	s.must(err)
	for _, k := range []FindingKind{FindObject, FindHole, FindNoBlob, FindOrphan} {
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == k }) {
			t.Errorf("check does not find: %s (in %v)", k, findings)
		}
	}
	st := Store{Index: s.idx, RAM: s.ram, Disk: s.disk}
	did, err := Repair(context.Background(), st, time.Now())
	s.must(err)
	if len(did) == 0 {
		t.Error("nothing was repaired")
	}
	left, err := Check(context.Background(), st)
	s.must(err)
	for _, f := range left {
		t.Errorf("after the repair: %s", f)
	}
	if s.idx.Count() != 5 {
		t.Errorf("%d generations are left of 6", s.idx.Count())
	}
}
