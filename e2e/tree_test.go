package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Section 1: the tree, its names, and what it refuses.

func TestModelNames(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		good := []string{
			"llama", "org--name", strings.Repeat("m", 255), "with space", "new\nline", "bytes\xff\xfe",
			"ünïcode", "-dash", "a..b", "tab\t", `quote"\`, "*", "~",
		}
		for _, name := range good {
			must(t, os.Mkdir(filepath.Join(m.path, name), 0o755))
			wantErrno(t, "the same again", os.Mkdir(filepath.Join(m.path, name), 0o755), syscall.EEXIST)
		}
		got := names(t, m.path)
		if len(got) != len(good) {
			t.Errorf("listing has %d names, want %d: %q", len(got), len(good), got)
		}
		for _, name := range good {
			if !contains(got, name) {
				t.Errorf("%q is not listed", name)
			}
		}
		wantErrno(t, "256 bytes", os.Mkdir(filepath.Join(m.path, strings.Repeat("m", 256)), 0o755), syscall.ENAMETOOLONG)
		for _, name := range []string{".hidden", "..x", ".staging", ".find"} {
			wantErrno(t, "mkdir "+name, os.Mkdir(filepath.Join(m.path, name), 0o755), syscall.EPERM)
		}
		for _, name := range good {
			must(t, os.Remove(filepath.Join(m.path, name)))
		}
		if left := names(t, m.path); len(left) != 0 {
			t.Errorf("left after rmdir: %q", left)
		}
	})
}

func TestDotNames(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident := m.addIdentity(t, "model", newIdentity("dots", 1))
		model := filepath.Dir(ident)
		g := tinyGeneration(newIdentity("dots", 1), conversation(1, 10))
		publish(t, ident, g)
		beginStaging(t, ident, "s1", tinyGeneration(g.ID, conversation(2, 10)))

		for dir, want := range map[string]string{
			m.path: "model", model: filepath.Base(ident), ident: g.name() + " identity.json",
			filepath.Join(ident, ".staging"): "s1",
		} {
			if got := strings.Join(names(t, dir), " "); got != want {
				t.Errorf("%s lists %q, want %q", dir, got, want)
			}
		}
		for path, mode := range map[string]uint32{
			m.statusPath():                    0,
			filepath.Join(model, ".identify"): syscall.S_IFREG | 0o666,
			filepath.Join(ident, ".find"):     syscall.S_IFREG | 0o666,
			filepath.Join(ident, ".staging"):  0,
		} {
			st := stat(t, path)
			if mode != 0 && st.Mode != mode {
				t.Errorf("%s has mode %o, want %o", path, st.Mode, mode)
			}
		}
		if st := stat(t, filepath.Join(m.path, ".ckptfs")); st.Uid != 0 || st.Mode&0o77 != 0 {
			t.Errorf(".ckptfs belongs to uid %d and has mode %o", st.Uid, st.Mode)
		}
		for _, dir := range []string{m.path, model, ident} {
			wantMissing(t, filepath.Join(dir, ".nothing"))
		}
		// Inside a staging everything is listed, dot names too.
		s := staging{ident: ident, name: "s1"}
		must(t, os.WriteFile(s.file(".scratch"), []byte("x"), 0o644))
		if got := names(t, s.path()); !contains(got, ".scratch") || !contains(got, "manifest.json") || !contains(got, "plan.json") {
			t.Errorf("a staging lists %q", got)
		}
		must(t, os.RemoveAll(s.path()))
	})
}

// TestRefused tries everything that the tree has no place for.
func TestRefused(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("refused", 1)
		ident := m.addIdentity(t, "model", id)
		model := filepath.Dir(ident)
		gen := publish(t, ident, smallGeneration(id, conversation(1, 300)))
		next := smallGeneration(id, conversation(2, 300))
		s := beginStaging(t, ident, "s", next)
		group := filepath.Join(gen, "rank-0", "target.attention.0")
		dirs := []string{m.path, model, ident, filepath.Join(ident, ".staging"), s.path(), gen,
			filepath.Join(gen, "rank-0"), group, filepath.Join(m.path, ".ckptfs")}
		before := map[string]string{}
		for _, d := range dirs {
			before[d] = strings.Join(names(t, d), " ")
		}
		for _, d := range dirs {
			wantErrno(t, "symlink in "+d, os.Symlink("/etc/passwd", d+"/ln"), syscall.EPERM)
			wantErrno(t, "fifo in "+d, unix.Mknod(d+"/ff", unix.S_IFIFO|0o644, 0), syscall.EPERM)
			wantErrno(t, "device in "+d, unix.Mknod(d+"/dv", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))), syscall.EPERM)
			wantErrno(t, "socket in "+d, unix.Mknod(d+"/so", unix.S_IFSOCK|0o644, 0), syscall.EPERM)
			wantErrno(t, "file in "+d, createFile(d+"/odd"), syscall.EPERM)
			wantErrno(t, "hard link in "+d, os.Link(gen+"/manifest.json", d+"/hl"), syscall.EPERM)
		}
		for _, d := range []string{gen, gen + "/rank-0", group, filepath.Join(m.path, ".ckptfs")} {
			wantErrno(t, "mkdir in "+d, os.Mkdir(d+"/dir", 0o755), syscall.EPERM)
		}
		for _, name := range []string{"notanidentity", strings.Repeat("A", 40), strings.Repeat("a", 39), strings.Repeat("a", 41)} {
			wantErrno(t, "mkdir "+name+" in a model", os.Mkdir(filepath.Join(model, name), 0o755), syscall.EPERM)
		}
		wantErrno(t, "mkdir of a generation by its final name", os.Mkdir(s.target(), 0o755), syscall.EPERM)
		wantErrno(t, "mkdir in an identity", os.Mkdir(filepath.Join(ident, "dir"), 0o755), syscall.EPERM)
		for _, p := range []string{filepath.Join(ident, ".find"), filepath.Join(model, ".identify"), m.statusPath()} {
			wantErrno(t, "unlink "+p, syscall.Unlink(p), syscall.EPERM)
		}
		for _, d := range dirs {
			if got := strings.Join(names(t, d), " "); got != before[d] {
				t.Errorf("%s lists %q, before it was %q", d, got, before[d])
			}
		}
		must(t, os.RemoveAll(s.path()))
	})
}

// createFile creates a file and nothing more.
func createFile(path string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// TestRenamePublished: published names stay where they are.
func TestRenamePublished(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("fixed", 1)
		ident := m.addIdentity(t, "model", id)
		model := filepath.Dir(ident)
		gen := publish(t, ident, smallGeneration(id, conversation(1, 300)))
		g := smallGeneration(id, conversation(2, 300))
		s := beginStaging(t, ident, "s", g)
		pg := "/rank-0/target.attention.0/00000000"
		for from, to := range map[string]string{
			m.path + "/model":        m.path + "/other",
			ident:                    model + "/" + strings.Repeat("b", 40),
			gen:                      ident + "/other",
			gen + "/rank-0":          gen + "/rank-1",
			gen + pg:                 gen + "/rank-0/target.attention.0/00000009",
			gen + "/manifest.json":   gen + "/m",
			ident + "/identity.json": ident + "/i",
		} {
			wantErrno(t, "rename "+from, syscall.Rename(from, to), syscall.EPERM)
			if _, err := os.Lstat(from); err != nil {
				t.Error(err)
			}
			wantMissing(t, to)
		}
		// What the filesystem makes is there, though it is not listed.
		for _, name := range []string{".find", ".staging"} {
			for _, to := range []string{"other", ".other"} {
				wantErrno(t, "rename of "+name+" to "+to, syscall.Rename(filepath.Join(ident, name), filepath.Join(ident, to)), syscall.EPERM)
			}
		}
		wantErrno(t, "rename of what is not there", syscall.Rename(ident+"/.other", ident+"/identity.json"), syscall.ENOENT)
		// Neither may a page be moved out of a published generation into a staging.
		must(t, os.MkdirAll(filepath.Dir(s.file(pg)), 0o755))
		wantErrno(t, "rename of a page into a staging", syscall.Rename(gen+pg, s.file(pg)), syscall.EPERM)
		must(t, checkGeneration(gen, smallGeneration(id, conversation(1, 300))))
		must(t, os.RemoveAll(s.path()))
	})
}

func TestRemoveEmpty(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("empty", 1)
		ident := m.addIdentity(t, "model", id)
		gen := publish(t, ident, tinyGeneration(id, conversation(1, 10)))
		for _, d := range []string{filepath.Dir(ident), ident, gen, gen + "/rank-0"} {
			wantErrno(t, "rmdir "+d, syscall.Rmdir(d), syscall.ENOTEMPTY)
			if _, err := os.Stat(d); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is gone", d)
			}
		}
	})
}
