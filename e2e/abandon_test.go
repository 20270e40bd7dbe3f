package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Section 3, step 6, and what is left of attempts that fail.

var longAgo = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)

// rm runs the real `rm -r` and returns what it printed.
func rm(paths ...string) (string, error) {
	out, err := exec.Command("rm", append([]string{"-r", "--"}, paths...)...).CombinedOutput()
	return string(out), err
}

func TestGiveUp(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m, s := newStaging(t, md)
		pages := s.g.pages()
		must(t, s.writePage(pages[0], 0))
		must(t, os.WriteFile(filepath.Dir(s.file(pages[0].path))+"/.scratch", []byte("x"), 0o600))
		wantErrno(t, "rename", s.rename(), syscall.EBUSY)
		if out, err := rm(s.path()); err != nil || out != "" {
			t.Errorf("rm -r: %v %s", err, out)
		}
		wantMissing(t, s.path())
		if got := names(t, filepath.Join(s.ident, ".staging")); len(got) != 0 {
			t.Errorf(".staging lists %q", got)
		}
		// The made files can be unlinked one by one, like others.
		b := beginStaging(t, s.ident, "b", s.g)
		b.complete(t)
		for _, name := range names(t, b.path()) {
			if fi, err := os.Lstat(b.file(name)); err != nil || !fi.IsDir() {
				must(t, os.Remove(b.file(name)))
			}
		}
		must(t, os.RemoveAll(b.path()))
		// A page that goes is missing again.
		c := beginStaging(t, s.ident, "c", s.g)
		c.complete(t)
		must(t, os.Remove(c.file(pages[3].path)))
		wantPlan(t, c, false, pages[3:4])
		wantErrno(t, "rename", c.rename(), syscall.EBUSY)
		c.complete(t)
		must(t, c.rename())
		must(t, checkGeneration(c.target(), c.g))
		_ = m
	})
}

// TestAbandoned: a staging that nobody holds and nobody changes goes after
// --staging-timeout. One that is held stays: that it outlives another which
// was abandoned later shows it, without any measuring of time.
func TestAbandoned(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m, held := newStaging(t, md, "--staging-timeout", "1s")
		byDir, err := os.Open(held.path())
		must(t, err)
		byPage := beginStaging(t, held.ident, "bypage", smallGeneration(held.g.ID, conversation(2, 1000)))
		must(t, byPage.writePage(byPage.g.pages()[0], 0))
		pg, err := os.Open(byPage.file(byPage.g.pages()[0].path))
		must(t, err)
		byMapping := beginStaging(t, held.ident, "bymapping", smallGeneration(held.g.ID, conversation(3, 1000)))
		must(t, byMapping.writePage(byMapping.g.pages()[0], 0))

		for i := range 2 {
			left := beginStaging(t, held.ident, fmt.Sprint("left", i), smallGeneration(held.g.ID, conversation(7, 300)))
			left.complete(t)
			eventually(t, "an abandoned staging goes", func() error { return gone(left.path()) })
		}
		for _, s := range []staging{held, byPage} {
			if _, err := os.Stat(s.path()); err != nil {
				t.Errorf("a staging that is held: %v", err)
			}
		}
		held.complete(t)
		must(t, held.rename())
		must(t, checkGeneration(held.target(), held.g))
		must(t, byDir.Close())
		must(t, checkOpenPage(pg, byPage.g.pages()[0]))
		must(t, pg.Close())
		eventually(t, "a staging goes after its last handle", func() error { return gone(byPage.path()) })
		eventually(t, "the other", func() error { return gone(byMapping.path()) })
		if got := names(t, filepath.Join(held.ident, ".staging")); len(got) != 0 {
			t.Errorf(".staging lists %q", got)
		}
		_ = m
	})
}

// gone returns an error as long as path is there.
func gone(path string) error {
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		return fmt.Errorf("%s: still there (%v)", path, err)
	}
	return nil
}

// TestKilledRank: a rank is killed in the middle of a page; its page is
// missing, and the retry writes it.
func TestKilledRank(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		pages := ofRank(s.g.pages(), 1)
		a, b := newAgent(t), newAgent(t)
		b.do(request{Op: "writerank", Path: s.ident, To: s.name, Gen: &s.g, Rank: 0})
		p := pages[1]
		must(t, os.MkdirAll(filepath.Dir(s.file(p.path)), 0o755))
		fd := int(a.do(request{Op: "open", Path: s.file(p.path), Flags: os.O_CREATE | os.O_EXCL | os.O_WRONLY, Mode: 0o644}).N)
		a.do(request{Op: "write", FD: fd, Page: wire(p), Copy: 5, Len: p.bytes / 2})
		wantErrno(t, "the other rank's rename", b.call(request{Op: "rename-staging", Path: s.ident, To: s.name, Gen: &s.g}).err(), syscall.EBUSY)
		a.kill()
		wantPlan(t, s, false, pages)

		// "EEXIST means the page is already there": half a page that nobody
		// writes any more is not there, so the retry is not told EEXIST.
		eventually(t, "the retry may create the page", func() error { return s.writePage(p, 0) })
		retry := newAgent(t)
		retry.do(request{Op: "writerank", Path: s.ident, To: s.name, Gen: &s.g, Rank: 1})
		retry.do(request{Op: "rename-staging", Path: s.ident, To: s.name, Gen: &s.g})
		must(t, checkGeneration(s.target(), s.g))
	})
}

// TestOneTakesUp: of many that open half a page for writing, which its writer has
// left and a reader still has, one gets it; to the others it is being written.
func TestOneTakesUp(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		half := s.g.pages()[0]
		path := s.file(half.path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		writer, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		must(t, err)
		_, err = writer.Write(make([]byte, half.bytes/2))
		must(t, err)
		reader, err := os.Open(path)
		must(t, err)
		must(t, writer.Close())
		for range 50 {
			var fds [8]int
			var errs [8]error
			var wg sync.WaitGroup
			for i := range fds {
				wg.Go(func() { fds[i], errs[i] = syscall.Open(path, syscall.O_WRONLY, 0) })
			}
			wg.Wait()
			got := 0
			for i, err := range errs {
				if err != nil {
					wantErrno(t, "open", err, syscall.EROFS)
					continue
				}
				got++
				must(t, syscall.Close(fds[i]))
			}
			if got != 1 {
				t.Fatalf("%d of %d got half a page for writing, want 1", got, len(fds))
			}
		}
		must(t, reader.Close())
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), s.g))
	})
}

// TestKilledStaging: the process of one of two stagings that share pages in
// flight is killed; the other is not harmed, whatever becomes of the first.
func TestKilledStaging(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		long := smallGeneration(s.g.ID, conversation(1, 2000))
		other := beginStaging(t, s.ident, "other", long)
		shared := s.g.pages()[0]
		a := newAgent(t)
		// Both write the shared page at the same time; neither waits.
		must(t, os.MkdirAll(filepath.Dir(s.file(shared.path)), 0o755))
		fd := int(a.do(request{Op: "open", Path: s.file(shared.path), Flags: os.O_CREATE | os.O_EXCL | os.O_WRONLY, Mode: 0o644}).N)
		a.do(request{Op: "write", FD: fd, Page: wire(shared), Copy: 5, Len: shared.bytes / 2})
		must(t, other.writePage(shared, 0))
		a.do(request{Op: "write", FD: fd, Page: wire(shared), Copy: 5, Off: shared.bytes / 2, Len: shared.bytes/2 - 8})
		other.complete(t)
		a.kill()
		must(t, checkPage(other.path(), shared))
		must(t, other.rename())
		must(t, checkGeneration(other.target(), long))
		// The first can go on too: what it has not, it has now from the other.
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), s.g))
	})
}
