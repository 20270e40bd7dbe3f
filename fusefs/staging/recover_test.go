package staging

import (
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"ckptfs/index"
)

// shape is what can be seen of a staging.
func shape(t *testing.T, d *Draft) map[string]EntryType {
	t.Helper()
	seen := map[string]EntryType{}
	var walk func(p Place, path string)
	walk = func(p Place, path string) {
		es, err := d.List(p, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			seen[path+"/"+e.Name] = e.Type
			if e.Type == EntryDir {
				walk(e.Place, path+"/"+e.Name)
			}
		}
	}
	walk(Place{}, "")
	return seen
}

// TestKilledAfterEveryStep: a staging is read back as it was after each thing
// that was done to it, with the same bytes held and reserved.
func TestKilledAfterEveryStep(t *testing.T) {
	b := newBench(t)
	sub := func(Place) uint64 { return 99 }
	root := Place{}
	att := Place{LevelGroup, 0, 0}
	steps := []func(d *Draft) error{
		func(d *Draft) error {
			_, err := d.Mkdir(root, "rank-1", index.Attr{Mode: 0o700}, sub, b.nextOp())
			return err
		},
		func(d *Draft) error {
			_, err := d.Mkdir(Place{Level: LevelRank, Rank: 1}, "att", index.Attr{}, sub, b.nextOp())
			return err
		},
		func(d *Draft) error { b.write(d, EntryTokens, tokens(1, 8)); return nil },
		func(d *Draft) error { b.write(d, EntryManifest, []byte(manifest(8, "x"))); return nil },
		func(d *Draft) error { return d.Accept(t.Context()) },
		func(d *Draft) error { return b.writePage(d, 0, pageBytes) },
		func(d *Draft) error { return b.writePage(d, 1, pageBytes) },
		func(d *Draft) error { return d.Unlink(att, "00000000", b.nextOp()) },
		func(d *Draft) error {
			_, f, err := d.CreateScratch(att, ".tmp", Owner{Mode: 0o600}, b.nextOp())
			if err == nil {
				_, err = f.Write(make([]byte, pageBytes))
				f.Close()
			}
			return err
		},
		func(d *Draft) error {
			return d.RenameScratch(t.Context(), att, ".tmp", att, "00000000", false, b.nextOp())
		},
		func(d *Draft) error { d.setError("a reason"); return nil },
		func(d *Draft) error {
			return d.SetAttr(7, func(index.Attr) index.Attr { return index.Attr{Mode: 0o751, UID: 3, Mtime: 5} })
		},
		func(d *Draft) error { return d.Hide(EntryPlan, b.nextOp()) },
	}
	d, err := b.Create(b.ident, "x", index.Attr{Mode: 0o755}, b.nextOp())
	b.must(err)
	for i, step := range steps {
		if err := step(d); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		want, wantHeld, wantReserved := shape(t, d), int64(0), int64(0)
		wantHeld, wantReserved = b.budget.Usage()
		done := b.op
		b.reopen()
		var ok bool
		if d, ok = b.ByName(b.ident.ID, "x"); !ok {
			t.Fatalf("step %d: the staging is gone", i)
		}
		if got := shape(t, d); !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: read back as %v, was %v", i, got, want)
		}
		if held, reserved := b.budget.Usage(); held != wantHeld || reserved != wantReserved {
			t.Fatalf("step %d: read back with %d held, %d reserved; was %d and %d", i, held, reserved, wantHeld, wantReserved)
		}
		if i < 2 && !b.Done(done) {
			t.Fatalf("step %d: its request is not known to be done", i)
		}
	}
	if a := d.Attr(7); a.Mode != 0o751 || a.UID != 3 || a.Mtime != 5 || d.ErrorText() != "a reason" {
		t.Fatalf("attributes or reason were lost: %+v, %q", a, d.ErrorText())
	}
	if n := b.fill(d); n != 4 {
		t.Fatalf("%d pages are missing, want 4", n)
	}
	b.publish(d)
	b.usage(6, 0)
}

// TestTornJournal: a journal that was cut at any byte is read back as what was
// whole before, or as nothing.
func TestTornJournal(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.must(b.writePage(d, 0, pageBytes))
	path := filepath.Join(b.draftDir(d.ID), "journal")
	whole, err := os.ReadFile(path)
	b.must(err)
	copyOf := t.TempDir()
	for n := range len(whole) {
		b.must(os.WriteFile(filepath.Join(copyOf, "journal"), whole[:n], 0o600))
		j, rs, err := openJournal(copyOf)
		if err != nil {
			if n > 300 {
				t.Fatalf("cut at %d: %v", n, err)
			}
			continue
		}
		if len(rs) == 0 || rs[0].Do != doNew {
			t.Fatalf("cut at %d: %d records, the first %q", n, len(rs), rs[0].Do)
		}
		b.must(j.append(record{Do: doError, Name: []byte("more")}))
		j.close()
		_, rs, err = openJournal(copyOf)
		b.must(err)
		if last := rs[len(rs)-1]; last.Do != doError {
			t.Fatalf("cut at %d: what was appended afterwards is lost", n)
		}
	}
}

// TestKilledAfterTheCommit: the daemon dies between the commit and the removal
// of the staging's files. The request is known to be done, the files go.
func TestKilledAfterTheCommit(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.fill(d)
	dir, kept := b.draftDir(d.ID), t.TempDir()
	op := b.nextOp()
	g, err := d.Publish(d.mu.content.derived.Name, op, func(*index.Generation) {
		b.must(os.CopyFS(kept, os.DirFS(dir)))
	})
	b.must(err)
	b.kill()
	b.must(os.CopyFS(dir, os.DirFS(kept)))
	b.open(false)
	if !b.Done(op) {
		t.Fatal("the rename is not known to be done")
	}
	b.noStagings()
	if len(b.Late) != 1 || b.Late[0].ID != g.ID {
		t.Fatalf("late %+v, want the generation", b.Late)
	}
}

// TestUnpublish: a generation becomes a tree that can be taken apart, also over
// a restart, and can be published again.
func TestUnpublish(t *testing.T) {
	for _, ghost := range []bool{false, true} {
		b := newBench(t)
		d := b.stage("x", 1, 8)
		b.fill(d)
		g := b.publish(d)
		name := "back"
		if ghost {
			name = g.Name
		}
		_, err := b.Unpublish(g, name, ghost, nil, "a test", b.nextOp())
		b.must(err)
		if b.ident.Generation(g.Name) != nil {
			t.Fatal("it is still published")
		}
		b.reopen()
		find := b.ByName
		if ghost {
			find = b.Ghost
		}
		d, ok := find(b.ident.ID, name)
		if !ok || d.ID != g.ID {
			t.Fatal("its tree did not outlive the daemon")
		}
		if !ghost {
			if n := b.fill(d); n != 0 {
				t.Fatalf("%d pages are missing", n)
			}
			b.publish(d)
			continue
		}
		for slot := range d.Layout().Total() {
			p, page := place(d, slot)
			b.must(d.Unlink(p, page, b.nextOp()))
		}
		_, f := 0, b.files()
		if f != 0 {
			t.Fatalf("%d page files are left", f)
		}
		wantErrno(t, d.Unlink(Place{LevelGroup, 0, 0}, "00000000", b.nextOp()), syscall.ENOENT)
	}
}

func TestDiscardAtAFreshMount(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.fill(d)
	b.kill()
	b.open(true)
	b.noStagings()
	b.usage(0, 0)
}

// TestKilledInTheMiddleOfAnUnlink: the journal says that a file was unlinked, and
// the daemon is killed before it is. The request is not done again, so the next
// daemon must do the rest.
func TestKilledInTheMiddleOfAnUnlink(t *testing.T) {
	b := newBench(t)
	unlink := func(d *Draft, e EntryType, path string) {
		t.Helper()
		id, op := d.ID, b.nextOp()
		kept, err := os.ReadFile(d.FilePath(e))
		b.must(err)
		b.must(d.RemoveFile(e, op))
		b.must(os.WriteFile(d.FilePath(e), kept, 0o600)) // as if it had not been removed
		b.reopen()
		d, ok := b.ByID(id)
		if !ok || !b.Done(op) {
			t.Fatalf("%s: the staging is there: %v, the unlink is done: %v", path, ok, b.Done(op))
		}
		if seen := shape(t, d); seen[path] != 0 {
			t.Errorf("%s, which was unlinked, is back: %v", path, seen)
		}
	}
	d, err := b.Create(b.ident, "x", index.Attr{Mode: 0o755}, b.nextOp())
	b.must(err)
	b.write(d, EntryTokens, tokens(1, 8))
	unlink(d, EntryTokens, "/tokens")

	published := b.publish(func() *Draft { d := b.stage("y", 1, 8); b.fill(d); return d }())
	ghost, err := b.Unpublish(published, published.Name, true, nil, "deleted", 0)
	b.must(err)
	unlink(ghost, EntryManifest, "/manifest.json")

	// What was unlinked and made anew is kept.
	d, _ = b.ByID(d.ID)
	b.write(d, EntryTokens, tokens(1, 8))
	b.reopen()
	d, _ = b.ByID(d.ID)
	if seen := shape(t, d); seen["/tokens"] == 0 {
		t.Errorf("tokens that were made again are gone: %v", seen)
	}
}
