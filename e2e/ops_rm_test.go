package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Deletion at the size of an operator's: 20,000 pages, three rm -rf at a time, and by those who may not.

// manyPages publishes generations of a conversation with n pages in all, by several ranks' worth of page groups.
func manyPages(t *testing.T, m *mount, n int) (ident string, gens []generation) {
	t.Helper()
	id := newIdentity("many", 2)
	ident = m.addIdentity(t, "large", id)
	const perRank = 500
	positions := make([]int, perRank)
	for i := range positions {
		positions[i] = i
	}
	for i := range n / (2 * perRank) {
		g := generation{ID: id, Kind: "response", Request: "req-1", Tokens: conversation(uint64(i), 100), Schema: 2,
			Groups: []group{{Name: "recurrent", Role: "recurrent", PageBytes: 64, Positions: positions}}}
		gens = append(gens, g)
		publish(t, ident, g)
	}
	return ident, gens
}

// TestRemoveManyPages: three overlapping rm -rf of 20,000 pages are silent, nothing is left, and df is back at the start.
func TestRemoveManyPages(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--l2-size", "1GiB") // else df moves with what others write to the disk
	before := statfs(t, m.path)
	ident, _ := manyPages(t, m, 20000)
	full := statfs(t, m.path)
	if full.Bfree >= before.Bfree {
		t.Errorf("df does not see 20,000 pages: %d free blocks, %d before", full.Bfree, before.Bfree)
	}
	held, err := os.Open(filepath.Join(ident, names(t, ident)[0], "rank-0", "recurrent", "00000007"))
	must(t, err)
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
	if got := names(t, m.path); len(got) != 0 {
		t.Errorf("the root lists %q", got)
	}
	must(t, held.Close())
	eventually(t, "df is back at the start", func() error {
		if after := statfs(t, m.path); after != before {
			return fmt.Errorf("%+v, %+v before", after, before)
		}
		return nil
	})
}

func statfs(t testing.TB, path string) syscall.Statfs_t {
	t.Helper()
	var s syscall.Statfs_t
	must(t, syscall.Statfs(path, &s))
	return s
}

// TestRemoveAsStranger: who may not delete changes nothing, and the owner of a directory may.
func TestRemoveAsStranger(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		ident, gens := removalSetup(t, m, 3)
		model := filepath.Dir(ident)
		must(t, os.Lchown(model, alice, alice))
		runQuietly(t, "chown", "-R", fmt.Sprint(alice), ident)
		before := treeOf(t, m.path)
		for _, path := range []string{filepath.Join(ident, gens[2].name()), ident, model} {
			out, err := rmAs(bob, path)
			if err == nil || !strings.Contains(out, "denied") && !strings.Contains(out, "not permitted") {
				t.Errorf("rm -rf %s as a stranger: %v\n%s", path, err, out)
			}
		}
		wantSameTree(t, "after a stranger's rm", treeOf(t, m.path), before)
		for _, g := range gens {
			must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		}
		if got := ask(t, ident, gens[2].Tokens); got.Generation != gens[2].name() {
			t.Errorf("a lookup after a stranger's rm: %+v", got)
		}
		if out, err := rmAs(alice, ident); err != nil || out != "" {
			t.Errorf("rm -rf as the owner: %v\n%s", err, out)
		}
		wantMissing(t, ident)
	})
}

func rmAs(uid uint32, path string) (string, error) {
	cmd := exec.Command("rm", "-rf", "--", path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
