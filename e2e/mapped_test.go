package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMappedCounts: a page that is mapped keeps its memory after rm -r, so the
// RAM tier counts it until it is unmapped, over the death of keeper and daemon.
func TestMappedCounts(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	id := newIdentity("mapped", 1)
	ident := m.addIdentity(t, "model", id)
	g := shapedGeneration(id, conversation(1, 900), 256, 1<<20)
	publish(t, ident, g)
	p := g.pages()[0]
	f, err := os.Open(filepath.Join(ident, g.name(), p.path))
	must(t, err)
	mem, err := unix.Mmap(int(f.Fd()), 0, int(p.bytes), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	must(t, f.Close())
	rmSilently(t, filepath.Join(ident, g.name()))
	m.wantRAM(t, p.bytes, p.bytes)
	m.killKeeper()
	m.start()
	m.wantRAM(t, p.bytes, p.bytes)
	must(t, checkBytes(p, 0, 0, mem))
	must(t, unix.Munmap(mem))
	m.wantRAM(t, 0, 0)
}

// wantRAM waits until so many bytes of RAM are used, so many of them by pages
// that are gone.
func (m *mount) wantRAM(t *testing.T, used, mapped int64) {
	t.Helper()
	eventually(t, "the RAM tier's fill", func() error {
		var s struct {
			RAM struct {
				Used   int64 `json:"used_bytes"`
				Mapped int64 `json:"mapped_bytes"`
			} `json:"ram"`
		}
		b, err := os.ReadFile(m.statusPath())
		must(t, err)
		must(t, json.Unmarshal(b, &s))
		if s.RAM.Used != used || s.RAM.Mapped != mapped {
			return fmt.Errorf("%d bytes, %d of them mapped; want %d and %d", s.RAM.Used, s.RAM.Mapped, used, mapped)
		}
		return nil
	})
}
