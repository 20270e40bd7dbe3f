package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is open when its last name goes: section 6.

// TestOpenWhenRemoved: what is open keeps its attributes and can be sought in.
func TestOpenWhenRemoved(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 1)
		dir := filepath.Join(ident, gens[0].name())
		p := gens[0].pages()[0]
		page := filepath.Join(dir, p.path)
		must(t, os.Chown(page, 70, 71))
		must(t, os.Chtimes(page, time.Time{}, time.Unix(86400, 5)))
		var open []*os.File
		var before []*syscall.Stat_t
		for _, path := range []string{page, filepath.Join(dir, "manifest.json")} {
			f, err := os.Open(path)
			must(t, err)
			defer f.Close()
			open, before = append(open, f), append(before, stat(t, path))
		}
		rmSilently(t, dir)
		for i, f := range open {
			if end, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE); err != nil || end != before[i].Size {
				t.Errorf("%s, removed: the first hole is at %d (%v), want %d", f.Name(), end, err, before[i].Size)
			}
		}
		wantSameOpen(t, open[0], before[0])
		must(t, checkOpenPage(open[0], p))
	})
}

// wantSameOpen compares what fstat says with what the file was as it had a name.
func wantSameOpen(t *testing.T, f *os.File, before *syscall.Stat_t) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Errorf("%s, removed: %v", f.Name(), err)
		return
	}
	if st.Mode != before.Mode || st.Uid != before.Uid || st.Gid != before.Gid || st.Size != before.Size ||
		st.Ino != before.Ino || st.Blocks != before.Blocks || st.Mtim != before.Mtim || st.Nlink != 0 {
		t.Errorf("%s, removed: %+v, before %+v", f.Name(), st, *before)
	}
}

// TestUncachedPageRemoved: a page that is served from disk because RAM is short is
// read to its end by who has it open when its generation is removed.
func TestUncachedPageRemoved(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, ident, gens, held := uncachedSetup(t, md)
		for _, f := range held {
			defer f.Close()
		}
		p := gens[0].pages()[0]
		dir := filepath.Join(ident, gens[0].name())
		path := filepath.Join(dir, p.path)
		f, err := os.Open(path)
		must(t, err)
		defer f.Close()
		wantXattr(t, path, "tier", "disk")
		before := stat(t, path)
		rmSilently(t, dir)
		wantSameOpen(t, f, before)
		must(t, checkOpenPage(f, p))
	})
}
