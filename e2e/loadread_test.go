package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// The loads that read, list, and hammer names.

// readOnce opens a page, checks it, and keeps it for later rounds; now and
// then it looks a generation up and restores it.
func (w *worker) readOnce() error {
	g := w.Base[w.rnd.IntN(len(w.Base))]
	dir := filepath.Join(w.Ident, g.name())
	pages := g.pages()
	p := pages[w.rnd.IntN(len(pages))]
	if w.rnd.IntN(8) == 0 {
		return w.restore(g)
	}
	f, err := os.Open(filepath.Join(dir, p.path))
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(p.bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return fmt.Errorf("mapping %s: %w", p.path, err)
	}
	w.open = append(w.open, heldPage{file: f, mem: mem, page: p})
	if len(w.open) > 30 {
		if err := w.open[0].release(); err != nil {
			return err
		}
		w.open = w.open[1:]
	}
	for _, h := range []heldPage{w.open[0], w.open[w.rnd.IntN(len(w.open))], w.open[len(w.open)-1]} {
		if err := h.check(); err != nil {
			return err
		}
	}
	return nil
}

func (h heldPage) check() error {
	if err := checkBytes(h.page, 0, 0, h.mem); err != nil {
		return fmt.Errorf("by mapping: %w", err)
	}
	if err := checkOpenPage(h.file, h.page); err != nil {
		return fmt.Errorf("by handle: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(h.file.Fd()), &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Size != h.page.bytes || st.Mode != unix.S_IFREG|0o444 {
		return fmt.Errorf("fstat of %s: size %d, mode %o", h.page.path, st.Size, st.Mode)
	}
	return nil
}

func (h heldPage) release() error {
	if err := unix.Munmap(h.mem); err != nil {
		return err
	}
	return h.file.Close()
}

// restore looks up and reads what was found, under the lookup's lease.
func (w *worker) restore(g generation) error {
	f, err := openFind(w.Ident)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := converse(f, findRequest{Tokens: g.Tokens}.bytes())
	if err != nil {
		return fmt.Errorf("lookup: %w", err)
	}
	if r.Generation != g.name() {
		return fmt.Errorf("lookup of %s found %+v", g.name(), r)
	}
	return checkGeneration(filepath.Join(w.Ident, r.Generation), g)
}

// listOnce reads a directory stream in small pieces; all that stays must be in it once.
func (w *worker) listOnce() error {
	fd, err := unix.Open(w.Ident, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the identity: %w", err)
	}
	defer unix.Close(fd)
	all, err := readAllDirents(fd, 300)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	seen := map[string]int{}
	for _, d := range all {
		seen[d.name]++
	}
	for name, n := range seen {
		if n != 1 {
			return fmt.Errorf("%s is listed %d times", name, n)
		}
	}
	for _, g := range w.Base {
		if seen[g.name()] != 1 {
			return fmt.Errorf("%s is not among the %d names listed", g.name(), len(all))
		}
	}
	return nil
}

// namesOnce makes and removes names whose every answer is known.
func (w *worker) namesOnce() error {
	model := filepath.Join(w.Mount, fmt.Sprintf("load-%d-%d", w.Seed, w.rnd.Uint32()))
	s := staging{ident: w.Ident, name: fmt.Sprintf("n%d", w.rnd.Uint32())}
	scratch := s.file(".scratch")
	for _, step := range []struct {
		what string
		err  func() error
		want syscall.Errno
	}{
		{"mkdir of a model", func() error { return syscall.Mkdir(model, 0o750) }, 0},
		{"mkdir of it again", func() error { return syscall.Mkdir(model, 0o750) }, syscall.EEXIST},
		{"chmod", func() error { return syscall.Chmod(model, 0o700) }, 0},
		{"identify", func() error { return second(identify(model, canonical(w.ID.Doc))) }, 0},
		{"rmdir of a model in use", func() error { return syscall.Rmdir(model) }, syscall.ENOTEMPTY},
		{"unlink of identity.json", func() error { return syscall.Unlink(filepath.Join(model, w.ID.dir(), "identity.json")) }, 0},
		{"rmdir of an identity", func() error { return syscall.Rmdir(filepath.Join(model, w.ID.dir())) }, 0},
		{"rmdir of a model", func() error { return syscall.Rmdir(model) }, 0},
		{"rmdir of it again", func() error { return syscall.Rmdir(model) }, syscall.ENOENT},
		{"mkdir of a staging", func() error { return syscall.Mkdir(s.path(), 0o755) }, 0},
		{"create", func() error { return createFile(scratch) }, 0},
		{"create again", func() error { return createFile(scratch) }, syscall.EEXIST},
		{"write", func() error { return os.WriteFile(scratch, []byte("{}"), 0o600) }, 0},
		{"rename of a bad manifest", func() error { return syscall.Rename(scratch, s.file("manifest.json")) }, syscall.EINVAL},
		{"stat", func() error { return syscall.Access(scratch, 0) }, 0},
		{"unlink", func() error { return syscall.Unlink(scratch) }, 0},
		{"unlink again", func() error { return syscall.Unlink(scratch) }, syscall.ENOENT},
		{"mkdir of a rank", func() error { return syscall.Mkdir(s.file("rank-0"), 0o755) }, 0},
		{"rmdir of a staging in use", func() error { return syscall.Rmdir(s.path()) }, syscall.ENOTEMPTY},
		{"rmdir of a rank", func() error { return syscall.Rmdir(s.file("rank-0")) }, 0},
	} {
		if err := expect(step.what, step.err(), step.want); err != nil {
			return err
		}
	}
	return w.removeExactly(s.path())
}
