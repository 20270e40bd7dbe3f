package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Section 6, last points: attributes that can be set, and that stay.

// attrs is what must not change by itself.
type attrs struct {
	Ino                   uint64
	Mode, UID, GID, Nlink uint32
	Size                  int64
	Mtime                 syscall.Timespec
}

func attrsOf(st *syscall.Stat_t) attrs {
	return attrs{Ino: st.Ino, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Nlink: uint32(st.Nlink), Size: st.Size, Mtime: st.Mtim}
}

// snapshot walks a tree and keeps the attributes of everything in it.
func snapshot(t testing.TB, root string) map[string]attrs {
	t.Helper()
	all := map[string]attrs{}
	must(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all[path] = attrsOf(&st)
		return nil
	}))
	return all
}

func wantSnapshot(t testing.TB, when string, before, after map[string]attrs) {
	t.Helper()
	for path, a := range before {
		if b, ok := after[path]; !ok {
			t.Errorf("%s: %s is gone", when, path)
		} else if a != b {
			t.Errorf("%s: %s was %+v, is %+v", when, path, a, b)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("%s: %s is new", when, path)
		}
	}
}

// attrSetup publishes two generations that share pages and sets what can be set.
func attrSetup(t *testing.T, m *mount) (model string) {
	t.Helper()
	id := newIdentity("attrs", 2)
	ident := m.addIdentity(t, "model", id)
	dir := publish(t, ident, smallGeneration(id, conversation(1, 1000)))
	publish(t, ident, smallGeneration(id, conversation(1, 2000)))
	model = filepath.Dir(ident)
	for i, d := range []string{model, ident, dir, dir + "/rank-1", dir + "/rank-1/target.attention.0"} {
		must(t, os.Chmod(d, os.FileMode(0o700+i)))
		must(t, os.Chown(d, 100+i, 200+i))
		must(t, os.Chtimes(d, longAgo, longAgo.Add(time.Duration(i)*1234567*time.Microsecond)))
	}
	for i, f := range []string{dir + "/manifest.json", dir + "/rank-0/target.attention.0/00000001"} {
		must(t, os.Chown(f, 300+i, 400+i))
		must(t, os.Chtimes(f, longAgo, longAgo.Add(time.Duration(i)*time.Hour)))
	}
	return model
}

func TestAttributesKept(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		model := attrSetup(t, m)
		set := snapshot(t, model)
		i := 0
		for path, a := range set {
			if a.Mode == syscall.S_IFDIR|0o704 {
				i++
				if a.UID != 104 || a.GID != 204 || a.Mtime.Nsec%1000 != 0 || a.Mtime.Sec != longAgo.Unix()+4 {
					t.Errorf("%s: %+v", path, a)
				}
			}
		}
		if i != 1 {
			t.Errorf("%d directories have mode 0704", i)
		}
		// chmod of a published file changes nothing, whether it says so or not.
		for path, a := range set {
			if a.Mode&syscall.S_IFMT == syscall.S_IFREG && filepath.Base(path) != "identity.json" {
				wantOneOf(t, "chmod "+path, os.Chmod(path, 0o777), 0, syscall.EPERM, syscall.EROFS)
			}
		}
		wantSnapshot(t, "after chmod of files", set, snapshot(t, model))
		for path := range set {
			if f, err := os.Open(path); err == nil { // reading moves nothing
				f.Read(make([]byte, 10))
				f.Close()
			}
		}
		wantSnapshot(t, "after reading", set, snapshot(t, model))

		old := m.killDaemon()
		eventually(t, "another daemon serves", func() error { return m.servedByOther(old) })
		wantSnapshot(t, "after the daemon's death", set, snapshot(t, model))

		m.killKeeper()
		m.start()
		wantSnapshot(t, "after the keeper's death", set, snapshot(t, model))
	})
}

// servedByOther returns nil once another process than old answers.
func (m *mount) servedByOther(old int) error {
	s, err := m.status()
	if err != nil {
		return err
	}
	if s.PID == old {
		return fmt.Errorf("process %d is still the daemon", old)
	}
	return nil
}

// TestDirectoryTimes: what changes a directory moves its mtime, at once.
func TestDirectoryTimes(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("times", 1)
		ident := m.addIdentity(t, "model", id)
		age := func(dir string) { must(t, os.Chtimes(dir, longAgo, longAgo)) }
		moved := func(what, dir string) {
			t.Helper()
			if stat(t, dir).Mtim.Sec == longAgo.Unix() {
				t.Errorf("%s does not move the mtime of %s", what, dir)
			}
		}
		g := smallGeneration(id, conversation(1, 300))
		age(ident)
		dir := publish(t, ident, g)
		moved("a publication", ident)
		age(ident)
		must(t, os.RemoveAll(dir))
		moved("a removal", ident)
		age(filepath.Dir(ident))
		other := m.addIdentity(t, "model", newIdentity("times 2", 1))
		moved("a new identity", filepath.Dir(ident))
		age(filepath.Dir(ident))
		must(t, os.RemoveAll(other))
		moved("a removed identity", filepath.Dir(ident))
		age(m.path)
		m.addModel(t, "another")
		moved("a new model", m.path)
	})
}

// TestLinkCounts: directories count as find(1) expects, files by their generations.
func TestLinkCounts(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("links", 1)
		ident := m.addIdentity(t, "model", id)
		const n = 4
		for i := range n {
			publish(t, ident, smallGeneration(id, conversation(1, 512+10*i)))
		}
		shared := "rank-0/target.attention.0/00000000"
		inodes := map[uint64]bool{}
		for _, name := range names(t, ident) {
			if name == "identity.json" {
				continue
			}
			st := stat(t, filepath.Join(ident, name, shared))
			inodes[st.Ino] = true
			if st.Nlink != n {
				t.Errorf("%s: %d links, want %d", name, st.Nlink, n)
			}
			f, err := os.Open(filepath.Join(ident, name, shared))
			must(t, err)
			var fst unix.Stat_t
			must(t, unix.Fstat(int(f.Fd()), &fst))
			must(t, f.Close())
			if fst.Ino != st.Ino {
				t.Errorf("fstat says inode %d, stat %d", fst.Ino, st.Ino)
			}
		}
		if len(inodes) != 1 {
			t.Errorf("one page has inodes %v", inodes)
		}
	})
}
