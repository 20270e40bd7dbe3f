package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUncachedPage: a page that is served from disk because RAM is short can be mapped, also when others open it who
// find room for it in RAM, and when the daemon is killed in between.
func TestUncachedPage(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m, ident, gens, held := uncachedSetup(t, md)
		p := gens[0].pages()[0]
		path := filepath.Join(ident, gens[0].name(), p.path)
		wantXattr(t, path, "tier", "disk")
		first := openMapped(t, path, p)
		wantXattr(t, path, "tier", "disk")
		for _, f := range held {
			must(t, f.Close())
		}
		rmSilently(t, filepath.Join(ident, gens[1].name()))
		second := openMapped(t, path, p) // comes to RAM
		wantXattr(t, path, "tier", "both")
		unmapped, err := os.Open(path)
		must(t, err)
		old := m.killDaemon()
		third := openMapped(t, path, p)
		must(t, m.servedByOther(old))
		for _, h := range []heldPage{first, second, third} {
			must(t, h.check())
			must(t, h.release())
		}
		must(t, checkOpenPage(unmapped, p))
		must(t, unmapped.Close())
		must(t, checkGeneration(filepath.Join(ident, gens[0].name()), gens[0]))
	})
}

// uncachedSetup publishes three generations, of which two are in use and take all of
// RAM, so that the first is served from disk. held are the leases.
func uncachedSetup(t *testing.T, md mode) (m *mount, ident string, gens []generation, held []*os.File) {
	t.Helper()
	m = mountFS(t, md, "--l1-size", "8MiB", "--l1-high", "1", "--l1-low", "0.99")
	id := newIdentity("uncached", 1)
	ident = m.addIdentity(t, "model", id)
	for i := range 3 {
		g := shapedGeneration(id, conversation(uint64(i), 500), 256, 1<<20) // 4 MiB
		gens = append(gens, g)
		publish(t, ident, g)
	}
	for _, g := range gens[1:] {
		f, err := openFind(ident)
		must(t, err)
		held = append(held, f)
		got, err := converse(f, findRequest{Tokens: g.Tokens}.bytes())
		must(t, err)
		if got.Generation != g.name() {
			t.Fatalf("found %+v", got)
		}
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	return m, ident, gens, held
}

// openMapped opens a page and maps it, and compares both.
func openMapped(t *testing.T, path string, p page) heldPage {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	mem, err := unix.Mmap(int(f.Fd()), 0, int(p.bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		t.Fatalf("mapping %s: %v", path, err)
	}
	h := heldPage{file: f, mem: mem, page: p}
	must(t, h.check())
	return h
}
