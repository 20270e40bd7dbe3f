package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDF: df shows what pages take in both tiers, to the page: nothing in an empty store, what du says in RAM, the
// objects on disk, and nothing again when all is gone; after restarts of every kind too.
func TestDF(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--l1-size", "64MiB", "--l2-size", "1GiB") // without the bound it moves with what others write
		wantUsed(t, "an empty store", m, 0)
		size := statfs(t, m.path)
		if total := int64(size.Blocks) * size.Bsize; total < 1<<30+60<<20 || total > 1<<30+64<<20 {
			t.Errorf("df shows %d bytes in all", total)
		}
		id := newIdentity("df", 1)
		ident := m.addIdentity(t, "model", id)
		g := shapedGeneration(id, conversation(1, 100), 100, 4<<20)
		dir := publish(t, ident, g)
		inRAM := realBytes(t, dir)
		wantUsed(t, "pages in RAM", m, inRAM)
		m.killDaemon()
		wantUsed(t, "pages in RAM after a restart", m, inRAM)

		m.stop()
		m.start()
		onDisk := realBytes(t, filepath.Join(m.state, "disk")) - emptyTier(t, m)
		wantUsed(t, "pages on disk", m, onDisk)
		must(t, checkGeneration(dir, g))
		eventually(t, "df sees both copies", func() error { return checkUsed(m, onDisk+inRAM) })
		old := m.killDaemon()
		must(t, m.servedByOther(old))
		wantUsed(t, "both copies after a restart", m, onDisk+inRAM)

		rmSilently(t, filepath.Dir(ident))
		eventually(t, "df is back at the start", func() error { return checkUsed(m, 0) })
		m.stop()
		m.start()
		wantUsed(t, "an empty store after a restart", m, 0)
		if after := statfs(t, m.path); after.Files != size.Files || after.Ffree != size.Ffree {
			t.Errorf("%d of %d inodes are free, %d of %d at the start", after.Ffree, after.Files, size.Ffree, size.Files)
		}
	})
}

func wantUsed(t *testing.T, what string, m *mount, want int64) {
	t.Helper()
	if err := checkUsed(m, want); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// checkUsed compares what df says is used.
func checkUsed(m *mount, want int64) error {
	s := statfs(m.t, m.path)
	if used := int64(s.Blocks-s.Bfree) * s.Bsize; s.Bfree > s.Blocks || s.Bavail > s.Bfree || used != want {
		return fmt.Errorf("df shows %d bytes used, %d wanted; %+v", used, want, s)
	}
	return nil
}

// realBytes is what the pages or objects below dir take, as du counts.
func realBytes(t *testing.T, dir string) (sum int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !strings.HasSuffix(path, ".json") {
			sum += stat(t, path).Blocks * 512
		}
		return err
	}))
	return sum
}

// emptyTier is what the directories of the disk tier take, and its own two files.
func emptyTier(t *testing.T, m *mount) (sum int64) {
	t.Helper()
	must(t, filepath.WalkDir(filepath.Join(m.state, "disk"), func(path string, d os.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Name() == "ckptfs-disk-tier" || d.Name() == "starts") {
			sum += stat(t, path).Blocks * 512
		}
		return err
	}))
	return sum
}
