package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// `ckptfs ls` and `ckptfs top`.

func TestLs(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		ident, gens := sharedTree(t, m, 3)
		must(t, setXattr(filepath.Join(ident, gens[1].name()), "pin", "1"))
		f, err := os.Open(filepath.Join(ident, gens[2].name()))
		must(t, err)
		defer f.Close()
		for path, want := range map[string]int{m.path: 4, filepath.Dir(ident): 3, ident: 3, filepath.Join(ident, gens[0].name()): 1,
			filepath.Join(ident, gens[0].name(), "rank-0"): 1} {
			r := ckptfs(t, "ls", "--json", path)
			if r.code != 0 || strings.Count(r.out, "\n") != want || r.errOut != "" {
				t.Errorf("ls %s: exit code %d, %s, want %d lines:\n%s", path, r.code, r.errOut, want, r.out)
			}
		}
		var first struct {
			Model, Identity, Generation, Kind, State, Tier string
			Tokens, Bytes                                  int64
		}
		must(t, json.Unmarshal([]byte(ckptfs(t, "ls", "--json", filepath.Join(ident, gens[0].name())).out), &first))
		if g := gens[0]; first.Model != "org--model" || first.Identity != g.ID.dir() || first.Generation != g.name() || first.Kind != g.Kind ||
			first.Tokens != int64(len(g.Tokens)) || first.Bytes != int64(len(g.pages()))*smallPage || first.Tier == "" || first.State == "" {
			t.Errorf("listed as %+v", first)
		}
		table := ckptfs(t, "ls", ident).out
		for i, words := range []string{"600  response  current", "pinned", "leased"} {
			if !strings.Contains(table, words) || !strings.Contains(table, gens[i].name()) {
				t.Errorf("the table does not have %q and %s:\n%s", words, gens[i].name(), table)
			}
		}
		if r := ckptfs(t, "ls", t.TempDir()); r.code != 9 || !strings.Contains(r.errOut, "not in a ckptfs mount") {
			t.Errorf("outside of a mount: exit code %d, %s", r.code, r.errOut)
		}
		if r := ckptfs(t, "ls", filepath.Join(ident, "none")); r.code == 0 {
			t.Error("ls of what is not there succeeds")
		}
	})
}

func TestTop(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := sharedTree(t, m, 2)
		s := beginStaging(t, ident, "being-written", smallGeneration(gens[0].ID, conversation(30, 700)))
		_, err := s.writeMissing(1, 0)
		must(t, err)
		f, err := os.Open(filepath.Join(ident, gens[1].name()))
		must(t, err)
		defer f.Close()
		r := ckptfs(t, "top", "--once", "--every", "50ms", m.path)
		for _, want := range []string{m.path, "RAM      [", "disk     [", "holds    3 of 65536 generations in 2 identities of 2 models",
			"model    org--model ", "lease    ", "(pid " + strconv.Itoa(os.Getpid()) + ")  directory org--model/", "stores   pages written", "being-written  0/5 5/5"} {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("exit code %d, %s; it does not say %q:\n%s", r.code, r.errOut, want, r.out)
			}
		}
		if strings.Contains(r.out, "\x1b") {
			t.Error("--once clears the screen")
		}
		if lines := strings.Count(r.out, "\n"); lines > 24 {
			t.Errorf("%d lines do not fit a screen", lines)
		}
		if r := ckptfs(t, "top", "--once", t.TempDir()); r.code != 9 {
			t.Errorf("without a mount: exit code %d, %s", r.code, r.errOut)
		}
		must(t, os.RemoveAll(s.path()))
	})
}
