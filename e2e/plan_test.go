package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
)

// Section 3, steps 3 and 4: the plan, and what need not be written.

// wantPlan compares plan.json with the pages that must still be missing. The
// contract gives the list no order, so none is asked for.
func wantPlan(t testing.TB, s staging, published bool, want []page) {
	t.Helper()
	p, err := s.plan()
	must(t, err)
	if p.Generation != s.g.name() || p.Published != published {
		t.Errorf("the plan says %s, published %v; want %s, %v", p.Generation, p.Published, s.g.name(), published)
	}
	var got, exp []string
	for _, m := range p.Missing {
		got = append(got, fmt.Sprint(m.Path, " ", m.Bytes))
	}
	for _, pg := range want {
		exp = append(exp, fmt.Sprint(pg.path, " ", pg.bytes))
	}
	sort.Strings(got)
	sort.Strings(exp)
	if g, e := strings.Join(got, "\n"), strings.Join(exp, "\n"); g != e {
		t.Errorf("the plan misses\n%s\nwant\n%s", g, e)
	}
}

func TestPlan(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("plan", 2)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		g.Groups[2].PageBytes = 100
		s := beginStaging(t, ident, "first", g)
		pages := g.pages()
		wantPlan(t, s, false, pages)
		// The plan is always current, page by page.
		for i, p := range pages {
			must(t, s.writePage(p, 0))
			wantErrno(t, "the same page again", s.writePage(p, 0), syscall.EEXIST)
			if i%5 == 0 || i >= len(pages)-2 {
				wantPlan(t, s, false, pages[i+1:])
			}
		}
		must(t, s.rename())
		if got := names(t, filepath.Join(ident, ".staging")); len(got) != 0 {
			t.Errorf(".staging lists %q after publication", got)
		}
		// What is published has no file of the staging any more.
		if got := strings.Join(names(t, s.target()), " "); got != "manifest.json rank-0 rank-1" {
			t.Errorf("the generation lists %q", got)
		}
		for _, name := range []string{"tokens", "plan.json", "error"} {
			wantMissing(t, filepath.Join(s.target(), name))
		}
		must(t, checkGeneration(s.target(), g))
		wantManifest(t, s.target(), g)
	})
}

// wantManifest compares the published manifest with what publication must make of it.
func wantManifest(t testing.TB, dir string, g generation) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	must(t, err)
	got := decode(t, b)
	if id, _ := got["identity"].(string); id != g.ID.dir() && id != g.ID.digest().hex() {
		t.Errorf("manifest names identity %q", id)
	}
	delete(got, "identity")
	if want := canonical(g.published()); !bytes.Equal(canonical(got), want) {
		t.Errorf("manifest is\n%s\nwant\n%s", canonical(got), want)
	}
}

func TestReplay(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("replay", 2)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		dir := publish(t, ident, g)
		before := stat(t, dir)

		// Another request id is still the same generation.
		again := g
		again.Request = "req-2"
		s := beginStaging(t, ident, "again", again)
		wantPlan(t, s, true, nil)
		if n, err := s.writeMissing(-1, 1); n != 0 || err != nil {
			t.Errorf("a replay wrote %d bytes: %v", n, err)
		}
		wantErrno(t, "publishing it again", s.rename(), syscall.EEXIST)
		if _, err := os.Stat(s.path()); err != nil {
			t.Errorf("the staging is left for its owner: %v", err)
		}
		if out, err := rm(s.path()); err != nil || out != "" {
			t.Errorf("rm -r of it: %v %s", err, out)
		}
		if after := stat(t, dir); after.Ino != before.Ino || after.Mtim != before.Mtim {
			t.Error("a replay changed the generation")
		}
		must(t, checkGeneration(dir, g))
		wantManifest(t, dir, g) // with the request of its first publication
	})
}

// TestContinuation: a longer generation of the same conversation shares its history.
func TestContinuation(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("continue", 2)
		ident := m.addIdentity(t, "model", id)
		short := smallGeneration(id, conversation(1, 1000)) // 3 full attention pages and a part
		long := smallGeneration(id, conversation(1, 2000))
		shortDir := publish(t, ident, short)

		s := beginStaging(t, ident, "long", long)
		var own, shared []page
		old := map[digest]page{}
		for _, p := range short.pages() {
			old[p.key] = p
		}
		for _, p := range long.pages() {
			if _, ok := old[p.key]; ok {
				shared = append(shared, p)
			} else {
				own = append(own, p)
			}
		}
		if len(shared) != 6 {
			t.Fatalf("this test's generations share %d pages, not 3 for each of 2 ranks", len(shared))
		}
		wantPlan(t, s, false, own)
		for _, p := range shared {
			must(t, checkPage(s.path(), p))
			wantErrno(t, "creating a page that is linked", s.writePage(p, 1), syscall.EEXIST)
			a, b := stat(t, filepath.Join(shortDir, old[p.key].path)), stat(t, s.file(p.path))
			if a.Ino != b.Ino {
				t.Errorf("%s: inode %d in the old generation, %d in the staging", p.path, a.Ino, b.Ino)
			}
		}
		s.complete(t)
		must(t, s.rename())
		for _, p := range long.pages() {
			links := uint64(1)
			st := stat(t, filepath.Join(s.target(), p.path))
			if from, ok := old[p.key]; ok {
				links = 2
				if a := stat(t, filepath.Join(shortDir, from.path)); a.Ino != st.Ino || uint64(a.Nlink) != 2 {
					t.Errorf("%s: inodes %d and %d, %d links by the old name", p.path, a.Ino, st.Ino, a.Nlink)
				}
			}
			if uint64(st.Nlink) != links {
				t.Errorf("%s has %d links right after the rename, want %d", p.path, st.Nlink, links)
			}
		}
		must(t, checkGeneration(s.target(), long))
		must(t, os.RemoveAll(shortDir))
		must(t, checkGeneration(s.target(), long))
		for _, p := range shared {
			if st := stat(t, filepath.Join(s.target(), p.path)); st.Nlink != 1 {
				t.Errorf("%s has %d links after the other generation went", p.path, st.Nlink)
			}
		}
	})
}

// TestSharedInFlight: a page that is complete in one staging is linked into
// another, and stays there when the first one gives up.
func TestSharedInFlight(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("flight", 1)
		ident := m.addIdentity(t, "model", id)
		short := smallGeneration(id, conversation(1, 1000))
		long := smallGeneration(id, conversation(1, 2000))
		a := beginStaging(t, ident, "a", short)
		a.complete(t)
		b := beginStaging(t, ident, "b", long)
		p, err := b.plan()
		must(t, err)
		if want := len(long.pages()) - 3; len(p.Missing) != want {
			t.Errorf("%d pages are missing, want %d", len(p.Missing), want)
		}
		must(t, os.RemoveAll(a.path()))
		b.complete(t)
		must(t, b.rename())
		must(t, checkGeneration(b.target(), long))

		// The same while neither was complete when the other began.
		c := beginStaging(t, ident, "c", smallGeneration(id, conversation(2, 1000)))
		d := beginStaging(t, ident, "d", smallGeneration(id, conversation(2, 2000)))
		first := c.g.pages()[0]
		must(t, c.writePage(first, 0))
		if _, err := d.writeMissing(-1, 0); err != nil {
			t.Fatal(err)
		}
		must(t, os.RemoveAll(c.path()))
		must(t, d.rename())
		must(t, checkGeneration(d.target(), d.g))
	})
}

// TestSchema1 shares nothing, not even with an equal prefix.
func TestSchema1(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("schema 1", 1)
		ident := m.addIdentity(t, "model", id)
		for i, n := range []int{1000, 1000, 2000} {
			g := smallGeneration(id, conversation(1, n))
			g.Schema, g.Nonce = 1, fmt.Sprint("nonce-", i)
			s := beginStaging(t, ident, "s", g)
			wantPlan(t, s, false, g.pages())
			s.complete(t)
			must(t, s.rename())
			must(t, checkGeneration(s.target(), g))
			wantManifest(t, s.target(), g)
		}
		g := smallGeneration(id, conversation(1, 1000))
		g.Schema, g.Nonce = 1, strings.Repeat("n", 129)
		s := staging{ident: ident, name: "s", g: g}
		wantErrno(t, "a nonce of 129 bytes", s.begin(), syscall.EINVAL)
		must(t, os.RemoveAll(s.path()))
	})
}

// TestMediaKeys: equal tokens with other images are another generation.
func TestMediaKeys(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("media", 1)
		ident := m.addIdentity(t, "model", id)
		cat := smallGeneration(id, conversation(1, 1000))
		cat.Media = []mediaItem{{At: 300, Digest: hexOf(64)}, {At: 999, Digest: hexOf(40)}}
		dog := smallGeneration(id, conversation(1, 1000))
		dog.Media = []mediaItem{{At: 300, Digest: strings.Repeat("d", 64)}}
		publish(t, ident, cat)
		s := beginStaging(t, ident, "dog", dog)
		// Only the first page, which ends before the first image, is the same.
		wantPlan(t, s, false, dog.pages()[1:])
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), dog))
		must(t, checkGeneration(filepath.Join(ident, cat.name()), cat))
		wantManifest(t, s.target(), dog)
	})
}
