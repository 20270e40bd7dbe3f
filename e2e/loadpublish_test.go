package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// The loads that write: a publisher, which has an identity for itself and so
// knows every answer, and ranks that race.

// expect turns any other outcome than errno into an error.
func expect(what string, err error, errno syscall.Errno) error {
	if errnoOf(err) == errno {
		return nil
	}
	return fmt.Errorf("%s: got %s (%v), want %s", what, errnoName(errnoOf(err)), err, errnoName(errno))
}

func (w *worker) publishOnce() error {
	next := conversationRef{Seed: w.Seed<<16 + uint64(w.rnd.IntN(1<<16)), N: 300 + w.rnd.IntN(500)}
	if k := len(w.published); k > 0 && w.rnd.IntN(2) == 0 { // continue what is there
		last := w.published[k-1]
		next = conversationRef{Seed: last.Seed, N: last.N + 1 + w.rnd.IntN(400)}
	}
	s := staging{ident: w.Ident, name: fmt.Sprintf("p%d", w.rnd.Uint32()), g: next.generation(w.ID)}
	if err := w.stageExactly(s); err != nil {
		return err
	}
	if err := expect("publication", s.rename(), 0); err != nil {
		return err
	}
	w.published = append(w.published, next)
	if err := checkGeneration(s.target(), s.g); err != nil {
		return err
	}
	if err := w.findExactly(s.g); err != nil {
		return err
	}
	switch {
	case w.rnd.IntN(4) == 0:
		if err := w.replay(s); err != nil {
			return err
		}
	case w.rnd.IntN(4) == 0:
		if err := w.unpublish(s); err != nil {
			return err
		}
	}
	if len(w.published) > 6 {
		old := w.published[0]
		w.published = w.published[1:]
		return w.removeExactly(filepath.Join(w.Ident, old.generation(w.ID).name()))
	}
	return nil
}

// stageExactly stages all pages; the plan must miss exactly what this worker's
// published generations do not have.
func (w *worker) stageExactly(s staging) error {
	if err := expect("mkdir of a staging", syscall.Mkdir(s.path(), 0o755), 0); err != nil {
		return err
	}
	if err := os.WriteFile(s.file("tokens"), tokenBytes(s.g.Tokens), 0o644); err != nil {
		return err
	}
	if err := s.writeManifest(spaced(s.g.manifest())); err != nil {
		return err
	}
	have := map[digest]bool{}
	for _, p := range w.published {
		for _, pg := range p.generation(w.ID).pages() {
			have[pg.key] = true
		}
	}
	paths, err := s.missing()
	if err != nil {
		return err
	}
	planned := map[string]bool{}
	for _, p := range paths {
		planned[p] = true
	}
	for _, p := range s.g.pages() {
		if have[p.key] == planned[p.path] {
			return fmt.Errorf("plan of %s: %s is there %v, planned %v", s.g.name(), p.path, have[p.key], planned[p.path])
		}
		if planned[p.path] {
			if err := w.writeSomehow(s, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSomehow writes a page in one of the ways that the contract names.
func (w *worker) writeSomehow(s staging, p page) error {
	dir := filepath.Dir(s.file(p.path))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	switch w.rnd.IntN(4) {
	case 0:
		return s.writePage(p, 0)
	case 1: // by a scratch name
		tmp := filepath.Join(dir, fmt.Sprintf(".t%d", w.rnd.Uint32()))
		if err := os.WriteFile(tmp, pageBytes(p, 0), 0o600); err != nil {
			return err
		}
		return expect("rename of a scratch name", syscall.Rename(tmp, s.file(p.path)), 0)
	case 2: // by a mapping that outlives its descriptor
		return writeByMapping(s.file(p.path), p)
	}
	f, err := os.OpenFile(s.file(p.path), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	for off := p.bytes - 1024; off >= 0; off -= 1024 {
		if _, err := f.WriteAt(pageRange(p, 0, off, off+1024), off); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

func writeByMapping(path string, p page) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	if err := unix.Ftruncate(fd, p.bytes); err != nil {
		unix.Close(fd)
		return fmt.Errorf("truncating %s: %w", path, err)
	}
	b, err := unix.Mmap(fd, 0, int(p.bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("mapping %s: %w", path, err)
	}
	copy(b, pageBytes(p, 0))
	return unix.Munmap(b)
}

// findExactly looks a continuation of g up; g itself must be found, since this
// worker has published nothing longer of it.
func (w *worker) findExactly(g generation) error {
	f, err := openFind(w.Ident)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := converse(f, findRequest{Tokens: append(append([]uint32{}, g.Tokens...), 1, 2, 3)}.bytes())
	if err != nil {
		return fmt.Errorf("lookup: %w", err)
	}
	if r.Generation != g.name() {
		return fmt.Errorf("lookup of %s found %+v", g.name(), r)
	}
	return nil
}

func (w *worker) replay(s staging) error {
	s.name += "r"
	if err := s.begin(); err != nil {
		return err
	}
	p, err := s.plan()
	if err != nil {
		return err
	}
	if !p.Published || len(p.Missing) != 0 {
		return fmt.Errorf("the plan of a replay is %+v", p)
	}
	if err := expect("publication of a replay", s.rename(), syscall.EEXIST); err != nil {
		return err
	}
	return w.removeExactly(s.path())
}

func (w *worker) unpublish(s staging) error {
	s.name += "u"
	if err := expect("unpublishing", syscall.Rename(s.target(), s.path()), 0); err != nil {
		return err
	}
	if err := expect("stat of it", syscall.Access(s.target(), 0), syscall.ENOENT); err != nil {
		return err
	}
	return expect("publishing again", s.rename(), 0)
}

// removeExactly is rm -r by single calls, each of which must succeed.
func (w *worker) removeExactly(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if err := w.removeExactly(path); err != nil {
				return err
			}
		} else if err := expect("unlink "+path, syscall.Unlink(path), 0); err != nil {
			return err
		}
	}
	return expect("rmdir "+dir, syscall.Rmdir(dir), 0)
}

// raceOnce lets four processes, one for each rank, write and rename.
func (w *worker) raceOnce() error {
	for len(w.ranks) < w.ID.World {
		a, err := startAgent("agent", 0, "/proc/self/exe")
		if err != nil {
			return err
		}
		w.ranks = append(w.ranks, a)
	}
	g := smallGeneration(w.ID, conversation(w.Seed<<16+uint64(w.rnd.IntN(1<<16)), 300))
	s := staging{ident: w.Ident, name: fmt.Sprintf("r%d", w.rnd.Uint32()), g: g}
	if err := s.begin(); err != nil {
		return err
	}
	for rank, a := range w.ranks {
		step := request{Op: "writerank", Path: w.Ident, To: s.name, Gen: &g, Rank: rank}
		if err := a.enc.Encode(step); err != nil {
			return err
		}
		step.Op = "rename-staging"
		if err := a.enc.Encode(step); err != nil {
			return err
		}
	}
	errs := make([]error, w.ID.World)
	for rank, a := range w.ranks {
		for range 2 {
			var rep reply
			if err := a.dec.Decode(&rep); err != nil {
				return err
			}
			if errs[rank] == nil {
				errs[rank] = rep.err()
			}
		}
	}
	won := 0
	for rank, err := range errs {
		switch errnoOf(err) {
		case 0:
			won++
		case syscall.EBUSY, syscall.EEXIST:
		default:
			return fmt.Errorf("rename by rank %d: %w", rank, err)
		}
	}
	if won != 1 {
		return fmt.Errorf("%d renames returned 0: %v", won, errs)
	}
	if err := checkGeneration(s.target(), g); err != nil {
		return err
	}
	if err := w.removeExactly(s.target()); err != nil {
		return err
	}
	if _, err := os.Lstat(s.target()); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("after its removal: %v", err)
	}
	return nil
}
