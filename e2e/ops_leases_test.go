package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// .ckptfs/leases.json and .ckptfs/config.json.

// lease is an entry of leases.json.
type lease struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
	Age     int64  `json:"age_seconds"`
	Bytes   int64  `json:"bytes"`
	Writes  bool   `json:"writes"`
}

type leaseList struct {
	Counts  map[string]int `json:"counts"`
	Leases  []lease        `json:"leases"`
	LeftOut int            `json:"left_out"`
}

// control reads a JSON file of .ckptfs.
func (m *mount) control(t testing.TB, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(m.path, ".ckptfs", name))
	must(t, err)
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v in %s", name, err, raw)
	}
}

// TestLeasesList: whoever holds a lease is named, over a restart of the daemon too.
func TestLeasesList(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	ident, gens := sharedTree(t, m, 2)
	long, relative := gens[1], strings.TrimPrefix(ident, m.path+"/")
	dir := filepath.Join(relative, long.name())
	s := beginStaging(t, ident, "half", smallGeneration(gens[0].ID, conversation(30, 700)))
	first := s.g.pages()[0]
	must(t, os.MkdirAll(filepath.Dir(s.file(first.path)), 0o755))

	page, err := os.Open(filepath.Join(ident, long.name(), long.pages()[0].path))
	must(t, err)
	defer page.Close()
	ranks, err := os.Open(filepath.Join(ident, long.name(), "rank-1"))
	must(t, err)
	defer ranks.Close()
	found, err := openFind(ident)
	must(t, err)
	defer found.Close()
	if _, err := converse(found, findRequest{Tokens: long.Tokens}.bytes()); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(s.file(first.path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	must(t, err)
	defer writer.Close()
	held, err := os.Open(s.path())
	must(t, err)
	defer held.Close()

	want := map[string]lease{
		"page":      {Path: filepath.Join(dir, long.pages()[0].path), Bytes: smallPage},
		"directory": {Path: filepath.Join(dir, "rank-1"), Bytes: int64(len(long.pages())) * smallPage},
		"find":      {Path: dir, Bytes: int64(len(long.pages())) * smallPage, Writes: true},
		"staging":   {Path: filepath.Join(relative, ".staging/half"), Bytes: int64(len(s.g.pages())) * smallPage},
		"writer":    {Path: filepath.Join(relative, ".staging/half", first.path), Kind: "page", Bytes: smallPage, Writes: true},
	}
	check := func() error {
		var list leaseList
		m.control(t, "leases.json", &list)
		if len(list.Leases) != len(want) || list.LeftOut != 0 ||
			list.Counts["pages"] != 2 || list.Counts["directories"] != 1 || list.Counts["finds"] != 1 || list.Counts["stagings"] != 1 {
			return fmt.Errorf("want %d leases: %+v", len(want), list)
		}
		for kind, w := range want {
			if w.Kind == "" {
				w.Kind = kind
			}
			w.PID, w.Command = os.Getpid(), commandOf(t)
			if !slices.ContainsFunc(list.Leases, func(l lease) bool { w.Age = l.Age; return l == w && l.Age < 600 }) {
				return fmt.Errorf("no lease %+v among %+v", w, list.Leases)
			}
		}
		return nil
	}
	must(t, check())
	m.killDaemon()
	must(t, check())
	for _, f := range []*os.File{page, ranks, found, writer, held} {
		must(t, f.Close())
	}
	eventually(t, "closed handles are no leases", func() error {
		var list leaseList
		m.control(t, "leases.json", &list)
		if len(list.Leases) > 0 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	must(t, os.RemoveAll(s.path()))
}

func commandOf(t testing.TB) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	return strings.TrimSpace(string(raw))
}

// TestConfigFile: every flag has its value, defaults and what was given.
func TestConfigFile(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--max-staging", "7", "--l1-size", "96MiB", "--staging-timeout", "90s", "--l1-high", "0.7", "--allow-other=false")
	var config struct {
		Mountpoint string         `json:"mountpoint"`
		Flags      map[string]any `json:"flags"`
	}
	m.control(t, "config.json", &config)
	for name, want := range map[string]any{
		"max-staging": 7.0, "l1-size": "96MiB", "staging-timeout": "1m30s", "l1-high": 0.7, "allow-other": false,
		"max-generations": 65536.0, "write-policy": "on-evict", "state": m.state, "l2-dir": filepath.Join(m.state, "disk"),
	} {
		if config.Flags[name] != want {
			t.Errorf("--%s is %v, want %v", name, config.Flags[name], want)
		}
	}
	if config.Mountpoint != m.path {
		t.Errorf("mounted at %s, it says", config.Mountpoint)
	}
	help := ckptfs(t, "mount", "--help").out
	for name := range config.Flags {
		if !strings.Contains(help, "--"+name) {
			t.Errorf("there is no flag --%s", name)
		}
	}
	if n := strings.Count(help, "\n      --"); n != len(config.Flags) {
		t.Errorf("%d flags are shown, help has %d", len(config.Flags), n)
	}
}
