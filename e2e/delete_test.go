package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Section 6: deletion with rm.

// removalSetup publishes n generations of one conversation.
func removalSetup(t *testing.T, m *mount, n int) (ident string, gens []generation) {
	t.Helper()
	id := newIdentity("rm", 2)
	ident = m.addIdentity(t, "model", id)
	for i := range n {
		g := smallGeneration(id, conversation(1, 600+100*i))
		gens = append(gens, g)
		publish(t, ident, g)
	}
	return ident, gens
}

// rmSilently runs rm -r, which must succeed and say nothing.
func rmSilently(t testing.TB, paths ...string) {
	t.Helper()
	if out, err := rm(paths...); err != nil || out != "" {
		t.Errorf("rm -r %v: %v\n%s", paths, err, tail(out))
	}
}

func TestRemoveGeneration(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 3)
		last := gens[2]
		dir := filepath.Join(ident, last.name())
		pages := last.pages()
		var open []*os.File
		for _, p := range pages {
			f, err := os.Open(filepath.Join(dir, p.path))
			must(t, err)
			defer f.Close()
			open = append(open, f)
		}
		rmSilently(t, dir)
		wantMissing(t, dir)
		if got := ask(t, ident, last.Tokens); got.Generation != gens[1].name() {
			t.Errorf("a lookup after rm finds %+v", got)
		}
		for i, f := range open { // their bytes live until the last close
			must(t, checkOpenPage(f, pages[i]))
		}
		for _, g := range gens[:2] {
			must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		}
		publish(t, ident, last)
		must(t, checkGeneration(dir, last))
		if got := ask(t, ident, last.Tokens); got.Generation != last.name() {
			t.Errorf("published again, a lookup finds %+v", got)
		}
	})
}

// TestRemoveIdentityAndModel removes what holds generations and stagings.
func TestRemoveIdentityAndModel(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 3)
		model := filepath.Dir(ident)
		rmSilently(t, ident)
		wantMissing(t, ident)
		if got := names(t, model); len(got) != 0 {
			t.Errorf("the model lists %q", got)
		}
		// The same again from nothing: what was is not remembered as bytes.
		again, _ := removalSetup(t, m, 2)
		if again != ident {
			t.Fatalf("identity %s, before %s", again, ident)
		}
		must(t, checkGeneration(filepath.Join(ident, gens[0].name()), gens[0]))
		m.addIdentity(t, "model", newIdentity("second", 1))
		rmSilently(t, model)
		wantMissing(t, model)
		if got := names(t, m.path); len(got) != 0 {
			t.Errorf("the root lists %q", got)
		}
	})
}

// TestFirstUnlinkRetires: no lookup, no listing and no publication sees a
// generation with a hole.
func TestFirstUnlinkRetires(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 3)
		for i, first := range []string{"rank-1/target.recurrent.0/", "manifest.json"} {
			g := gens[2-i]
			dir := filepath.Join(ident, g.name())
			if first != "manifest.json" {
				first += names(t, filepath.Join(dir, first))[0]
			}
			must(t, os.Remove(filepath.Join(dir, first)))
			if got := ask(t, ident, g.Tokens); got.Generation != gens[1-i].name() {
				t.Errorf("after the first unlink a lookup finds %+v", got)
			}
			if contains(names(t, ident), g.name()) {
				t.Error("after the first unlink the generation is listed")
			}
			// The names go on being there for who removes them.
			rest := ofRank(g.pages(), 0)[0]
			must(t, checkPage(dir, rest))
			wantMissing(t, filepath.Join(dir, first))
			rmSilently(t, dir)
			wantMissing(t, dir)
			must(t, checkGeneration(filepath.Join(ident, gens[0].name()), gens[0]))
		}
		// A generation that was retired half way can be published anew.
		g := gens[0]
		dir := filepath.Join(ident, g.name())
		must(t, os.Remove(filepath.Join(dir, g.pages()[0].path)))
		s := beginStaging(t, ident, "anew", g)
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(dir, g))
		if got := ask(t, ident, g.Tokens); got.Generation != g.name() {
			t.Errorf("published anew, a lookup finds %+v", got)
		}
	})
}

// TestPublishedWhileRemoved: a generation that is published again while the names of a former one of the same content
// are still being removed is whole, and can be removed like any other, as often as that happens.
func TestPublishedWhileRemoved(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 1)
		g := gens[0]
		dir := filepath.Join(ident, g.name())
		for i, path := range []string{g.pages()[0].path, "manifest.json", g.pages()[1].path} {
			must(t, os.Remove(filepath.Join(dir, path)))
			publish(t, ident, g)
			must(t, checkGeneration(dir, g))
			if i == 1 {
				m.killDaemon()
			}
		}
		rmSilently(t, dir)
		wantMissing(t, dir)
		if got := ask(t, ident, g.Tokens); got.Generation != "" {
			t.Errorf("a lookup after rm finds %+v", got)
		}
		if left := m.whole(t).Removing; left != 0 {
			t.Errorf("%d generations are still being removed", left)
		}
	})
}

func TestOverlappingRemovals(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		for range 3 {
			ident, _ := removalSetup(t, m, 30)
			var wg sync.WaitGroup
			for _, path := range []string{ident, ident, filepath.Dir(ident)} {
				wg.Go(func() {
					if out, err := exec.Command("rm", "-rf", "--", path).CombinedOutput(); err != nil || len(out) > 0 {
						t.Errorf("rm -rf %s: %v\n%s", path, err, tail(string(out)))
					}
				})
			}
			wg.Wait()
			wantMissing(t, filepath.Dir(ident))
		}
	})
}

// TestRemoveUnderLoad: rm of an identity while others publish into another and look up in both.
func TestRemoveUnderLoad(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 40)
		id := newIdentity("neighbour", 2)
		next := m.addIdentity(t, "model", id)
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				g := smallGeneration(id, conversation(5, 300+i%50*20))
				dir := filepath.Join(next, g.name())
				if _, err := publishAs(next, fmt.Sprint("n", i), g); err != nil {
					t.Errorf("publishing beside rm: %v", err)
					return
				}
				if out, err := rm(dir); err != nil || out != "" {
					t.Errorf("rm -r beside rm: %v %s", err, out)
					return
				}
			}
		})
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				lookupDuringRemoval(t, ident, gens)
			}
		})
		rmSilently(t, ident)
		close(done)
		wg.Wait()
	})
}

// lookupDuringRemoval: what a lookup returns is whole as long as its handle is open.
func lookupDuringRemoval(t *testing.T, ident string, gens []generation) {
	longest := gens[len(gens)-1]
	f, err := openFind(ident)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Errorf("opening .find: %v", err)
		return
	}
	defer f.Close()
	got, err := converse(f, findRequest{Tokens: longest.Tokens}.bytes())
	if err != nil && errnoOf(err) != syscall.ENOENT && errnoOf(err) != syscall.ESTALE {
		t.Errorf("lookup: %v", err)
	}
	for _, g := range gens {
		if g.name() != got.Generation {
			continue
		}
		// Between the answer and this open, rm may have begun with it; a page
		// that can be opened must be right.
		for _, p := range g.pages()[:3] {
			if err := checkPage(filepath.Join(ident, g.name()), p); err != nil && !os.IsNotExist(err) {
				t.Errorf("page of a found generation: %v", err)
			}
		}
	}
}
