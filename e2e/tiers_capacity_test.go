package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Tiers that are smaller after a restart than what is in them.

// fills is what status.json says of both tiers.
type fills struct {
	RAM, Disk struct {
		Size int64 `json:"size_bytes"`
		Used int64 `json:"used_bytes"`
	}
	AtRest bool `json:"at_rest"`
}

func (m *mount) fills(t testing.TB) (s fills) {
	t.Helper()
	b, err := os.ReadFile(m.statusPath())
	must(t, err)
	must(t, json.Unmarshal(b, &s))
	return s
}

// capacityMount has twelve generations of 1 MiB, the coldest first.
func capacityMount(t *testing.T, flags ...string) (m *mount, ident string, gens []generation) {
	t.Helper()
	requireFUSE(t)
	m = newMount(t, modes[0], "--l1-size", "32MiB", "--retention", "recency", "--compress", "off", "--l2-min-free", "0")
	m.flags = append(m.flags, flags...)
	m.start()
	id := newIdentity(t.Name(), 1)
	ident = m.addIdentity(t, "model", id)
	for i := range 12 {
		g := shapedGeneration(id, conversation(uint64(i), 600), 256, 128<<10)
		publish(t, ident, g)
		gens = append(gens, g)
	}
	return m, ident, gens
}

// wantKept wants the last of gens to be there, byte for byte, and the others,
// at least one, to be gone.
func wantKept(t *testing.T, ident string, gens []generation) {
	t.Helper()
	kept := 0
	for i, g := range gens {
		dir := filepath.Join(ident, g.name())
		_, err := os.Lstat(dir)
		switch {
		case err == nil:
			kept++
			must(t, checkGeneration(dir, g))
		case !errors.Is(err, fs.ErrNotExist):
			t.Error(err)
		case kept > 0:
			t.Errorf("generation %d is gone, colder ones are there", i)
		}
	}
	if kept == 0 || kept == len(gens) {
		t.Errorf("%d of %d generations are there", kept, len(gens))
	}
}

// TestSmallerDisk: the coldest generations go, which the log says before.
func TestSmallerDisk(t *testing.T) {
	m, ident, gens := capacityMount(t)
	m.stop() // all of it is on disk now
	m.flags = append(m.flags, "--l2-size", "4MiB")
	m.expectWarn("the disk tier holds more than --l2-size")
	m.start()
	eventually(t, "the disk tier within its bound", func() error {
		if s := m.fills(t); s.Disk.Used > 4<<20 || s.Disk.Used == 0 {
			return fmt.Errorf("%d bytes are used", s.Disk.Used)
		}
		return nil
	})
	wantKept(t, ident, gens)
	log := m.log()
	warned, gone := strings.Index(log, "holds more than --l2-size"), strings.Index(log, "generation retired")
	if warned < 0 || gone < 0 || gone < warned {
		t.Errorf("the log does not say first that generations will go:\n%s", tail(log))
	}
	m.stop()
	m.fsck(true)
}

// TestStopKeepsTheWarmest: RAM holds more than the disk tier may. What goes to
// disk at the stop is the warmest, and no RAM stays taken for the rest.
func TestStopKeepsTheWarmest(t *testing.T) {
	m, ident, gens := capacityMount(t, "--l2-size", "5MiB")
	m.stop()
	m.fsck(true)
	m.start()
	wantKept(t, ident, gens)
}

// TestSmallerRAM: what does not fit goes to disk, nothing is lost.
func TestSmallerRAM(t *testing.T) {
	m, ident, gens := capacityMount(t)
	m.killKeeper()
	m.flags = append(m.flags, "--l1-size", "2MiB")
	m.expectWarn("the RAM tier holds more than --l1-size")
	m.start()
	eventually(t, "the RAM tier within its bound", func() error {
		if s := m.fills(t); s.RAM.Used > 2<<20 || s.RAM.Size != 2<<20 {
			return fmt.Errorf("%d bytes are used of %d", s.RAM.Used, s.RAM.Size)
		}
		return nil
	})
	for _, g := range gens {
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	m.stop()
	m.fsck(true)
}

// TestAbsurdSizes: a size that is surely a mistake is refused, in words, and
// deletes nothing.
func TestAbsurdSizes(t *testing.T) {
	m, ident, gens := capacityMount(t)
	for i := range 12 {
		g := shapedGeneration(newIdentity(t.Name(), 1), conversation(uint64(100+i), 600), 256, 128<<10)
		publish(t, ident, g)
		gens = append(gens, g)
	}
	m.stop()
	flags := m.flags
	for _, c := range []struct{ flag, value, says string }{
		{"--l2-size", "1MiB", "nearly all"},
		{"--l2-size", "10", "too little"},
		{"--l2-size", "-1", "size"},
		{"--l1-size", "1k", "too little"},
		{"--l1-size", "900T", "more than the memory"},
		{"--l2-min-free", "900T", "left free"},
	} {
		m.flags = append(flags[:len(flags):len(flags)], c.flag+"="+c.value)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := m.command()
		out, err := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...).CombinedOutput()
		cancel()
		if err == nil || ctx.Err() == context.DeadlineExceeded {
			t.Errorf("%s %s: it is not refused: %v", c.flag, c.value, err)
		}
		if !strings.Contains(string(out), c.says) {
			t.Errorf("%s %s: it does not say %q:\n%s", c.flag, c.value, c.says, tail(string(out)))
		}
	}
	m.flags = flags
	m.expectWarn("")
	m.start()
	for _, g := range gens {
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
}
