package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The tools of operators, as they are installed. A test whose tool is missing is skipped.

// tool returns the path of a program.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s here", name)
	}
	return path
}

// runTool runs a program, which must succeed, and returns what it printed, errors included.
func runTool(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(tool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, tail(string(out)))
	}
	return string(out)
}

// runQuietly is runTool where nothing may be printed.
func runQuietly(t testing.TB, name string, args ...string) {
	t.Helper()
	if out := runTool(t, name, args...); out != "" {
		t.Errorf("%s %s prints:\n%s", name, strings.Join(args, " "), tail(out))
	}
}

// treeEntry is what a backup must preserve of a file.
type treeEntry struct {
	Path           string
	Mode, UID, GID uint32
	Size, Mtime    int64
	Links          uint64
	Ino            uint64
}

// treeOf lists a tree by lstat, sorted by path; without sizes of directories. Names that begin with a dot are left out.
func treeOf(t testing.TB, root string) []treeEntry {
	t.Helper()
	var list []treeEntry
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st := stat(t, path)
		rel, _ := filepath.Rel(root, path)
		e := treeEntry{Path: rel, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano(), Ino: st.Ino}
		if !d.IsDir() {
			e.Size, e.Links = st.Size, uint64(st.Nlink)
		}
		list = append(list, e)
		return nil
	})
	must(t, err)
	return list
}

// withoutIno is a snapshot that can be compared with that of a copy.
func withoutIno(list []treeEntry) []treeEntry {
	list = slices.Clone(list)
	for i := range list {
		list[i].Ino = 0
	}
	return list
}

func wantSameTree(t testing.TB, what string, got, want []treeEntry) {
	t.Helper()
	for i := 0; i < len(got) || i < len(want); i++ {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s: %d entries, want %d; the first that differs is %d:\n%+v\n%+v", what, len(got), len(want), i,
				got[min(i, len(got)-1)], want[min(i, len(want)-1)])
			return
		}
	}
}

// sharedTree publishes n generations of one conversation in two models with owners, modes and mtimes of their own.
func sharedTree(t testing.TB, m *mount, n int) (ident string, gens []generation) {
	t.Helper()
	id := newIdentity("tools", 2)
	ident = m.addIdentity(t, "org--model", id)
	for i := range n {
		g := smallGeneration(id, conversation(1, 600+200*i))
		gens = append(gens, g)
		publish(t, ident, g)
	}
	other := newIdentity("other", 1)
	publish(t, m.addIdentity(t, "second", other), smallGeneration(other, conversation(9, 500)))
	must(t, syscall.Chmod(filepath.Dir(ident), 0o2750))
	must(t, os.Lchown(ident, alice, bob))
	dir := filepath.Join(ident, gens[0].name())
	must(t, os.Lchown(dir, alice, alice))
	page := filepath.Join(dir, gens[0].pages()[0].path)
	must(t, os.Lchown(page, bob, bob))
	must(t, os.Chtimes(page, longAgo, longAgo))
	must(t, os.Chtimes(filepath.Join(dir, "manifest.json"), longAgo, longAgo))
	must(t, os.Chtimes(dir, longAgo, longAgo))
	return ident, gens
}

func TestCopyingTools(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := sharedTree(t, m, 4)
		before := treeOf(t, m.path)
		want := withoutIno(before)
		copyTo := filepath.Join(m.dir, "copy")
		t.Run("cp", func(t *testing.T) {
			runQuietly(t, "cp", "-a", m.path, copyTo)
			wantSameTree(t, "cp -a", withoutIno(treeOf(t, copyTo)), want)
			runQuietly(t, "diff", "-r", m.path, copyTo)
		})
		t.Run("tar", func(t *testing.T) {
			to, archive := filepath.Join(m.dir, "untarred"), filepath.Join(m.dir, "t.tar")
			must(t, os.Mkdir(to, 0o755))
			runQuietly(t, "tar", "-cSf", archive, "--format=posix", "-C", m.path, ".")
			runQuietly(t, "tar", "-xpSf", archive, "-C", to)
			wantSameTree(t, "tar -S", withoutIno(treeOf(t, to)), want)
			runQuietly(t, "diff", "-r", m.path, to)
			runQuietly(t, "tar", "-df", archive, "-C", m.path)
		})
		t.Run("sha256sum", func(t *testing.T) {
			sums := filepath.Join(m.dir, "sums")
			must(t, os.WriteFile(sums, []byte(runTool(t, "sh", "-c", "cd "+m.path+" && find . -type f -print0 | xargs -0 sha256sum")), 0o644))
			runQuietly(t, "sh", "-c", "cd "+m.path+" && sha256sum --quiet -c "+sums)
			runQuietly(t, "sh", "-c", "cd "+copyTo+" && sha256sum --quiet -c "+sums)
		})
		t.Run("du", func(t *testing.T) { duAgrees(t, m.path) })
		wantSameTree(t, "the mount after being read", treeOf(t, m.path), before)
		t.Run("find", func(t *testing.T) { findAgrees(t, m, ident, gens) })
	})
}

// duAgrees compares du with what lstat says of files, each inode once.
func duAgrees(t *testing.T, root string) {
	var blocks, apparent int64
	seen := map[uint64]bool{}
	for _, e := range treeOf(t, root) {
		if seen[e.Ino] || e.Mode&syscall.S_IFMT != syscall.S_IFREG {
			continue
		}
		seen[e.Ino] = true
		blocks += stat(t, filepath.Join(root, e.Path)).Blocks * 512
		apparent += e.Size
	}
	number := func(args ...string) int64 {
		field := strings.Fields(runTool(t, "du", append(args, root)...))
		n, err := strconv.ParseInt(field[0], 10, 64)
		must(t, err)
		return n
	}
	if got := number("-s", "-B1"); got != blocks {
		t.Errorf("du says %d bytes, the inodes have %d", got, blocks)
	}
	if got := number("-s", "-b"); got != apparent {
		t.Errorf("du --apparent-size says %d bytes, the inodes have %d", got, apparent)
	}
	if apparent > blocks || blocks > 4*apparent {
		t.Errorf("%d bytes in blocks for %d bytes", blocks, apparent)
	}
}

// findAgrees: what is published after a reference file is found by -newer, and nothing else.
func findAgrees(t *testing.T, m *mount, ident string, gens []generation) {
	ref := filepath.Join(m.dir, "reference")
	must(t, os.WriteFile(ref, nil, 0o644))
	now := stat(t, filepath.Join(ident, gens[len(gens)-1].name())).Mtim.Nano()
	for stat(t, ref).Mtim.Nano() <= now { // the kernel's clock for files ticks in steps
		must(t, os.WriteFile(ref, []byte("x"), 0o644))
	}
	find := func(args ...string) []string {
		return strings.Fields(runTool(t, "find", append([]string{m.path, "-mindepth", "3", "-maxdepth", "3", "-type", "d"}, args...)...))
	}
	if got := find(); len(got) != len(gens)+1 {
		t.Errorf("find sees the generations %q", got)
	}
	if got := find("-newer", ref); len(got) != 0 {
		t.Errorf("newer than the reference: %q", got)
	}
	fresh := smallGeneration(gens[0].ID, conversation(77, 300))
	dir := publish(t, ident, fresh)
	if got := find("-newer", ref); len(got) != 1 || got[0] != dir {
		t.Errorf("newer than the reference: %q, want %s", got, dir)
	}
	if got := runTool(t, "find", m.path, "-name", ".*", "-mindepth", "1"); got != "" {
		t.Errorf("find sees dot names: %q", got)
	}
	if got := strings.Count(runTool(t, "find", dir, "-type", "f", "-links", "1"), "\n"); got != len(fresh.pages())+1 {
		t.Errorf("%d files of one link, want %d", got, len(fresh.pages())+1)
	}
	rmSilently(t, dir)
}
