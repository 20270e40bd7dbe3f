package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupOfBothTiers: a store of which most is on disk is backed up; a second run finds nothing to do, whatever has
// moved between the tiers since, after a clean stop and in another place too; and what engines use stays in RAM.
func TestBackupOfBothTiers(t *testing.T) {
	tool(t, "rsync")
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--l1-size", "24MiB")
		id := newIdentity("tiers", 1)
		ident := m.addIdentity(t, "model", id)
		var gens []generation
		for i := range 12 {
			g := shapedGeneration(id, conversation(uint64(i), 500), 256, 1<<20) // 4 pages of 1 MiB, and what they share
			g.Request = "req-" + string(rune('a'+i))
			gens = append(gens, g)
			publish(t, ident, g)
		}
		m.awaitRest(t)
		used := gens[3] // brought to RAM by a lookup, and there to stay when eviction has come to rest
		find, err := openFind(ident)
		must(t, err)
		got, err := converse(find, findRequest{Tokens: used.Tokens}.bytes())
		must(t, err)
		if got.Generation != used.name() {
			t.Fatalf("found %+v", got)
		}
		must(t, checkGeneration(filepath.Join(ident, used.name()), used))
		m.awaitRest(t)
		must(t, find.Close())
		inRAM := func(g generation) bool {
			for _, p := range g.pages() {
				if tier, err := xattr(filepath.Join(ident, g.name(), p.path), "tier"); err != nil || tier == "disk" {
					return false
				}
			}
			return true
		}
		var warm []generation
		for _, g := range gens {
			if inRAM(g) {
				warm = append(warm, g)
			}
		}
		if n := len(gens) - len(warm); n < 6 || !inRAM(used) {
			t.Fatalf("%d of %d generations have left RAM", n, len(gens))
		}
		backup := filepath.Join(m.dir, "backup")
		rsyncBackup(t, m.path, backup)
		for _, g := range gens {
			must(t, checkGeneration(filepath.Join(backup, "model", id.dir(), g.name()), g))
		}
		for _, g := range warm {
			if !inRAM(g) {
				t.Errorf("the backup has driven %s out of RAM", g.name())
			}
		}
		quiet := func(when string) {
			t.Helper()
			if got := changes(rsyncBackup(t, m.path, backup)); len(got) != 0 {
				t.Errorf("%s a run changes:\n%s", when, strings.Join(got, "\n"))
			}
		}
		quiet("a second time")
		for _, g := range gens[:6] {
			ask(t, ident, g.Tokens)
			must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		}
		quiet("after others were brought to RAM")
		m.stop()
		m.start()
		quiet("after a clean stop")
		m.stop()
		m.path = filepath.Join(m.dir, "elsewhere")
		must(t, os.Mkdir(m.path, 0o755))
		m.start()
		quiet("from another mount point")
	})
}
