package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Section 7: the death of the daemon is seen by no client.

const kills = 20

// survivors are things that are open before the first kill and must go on after the last.
type survivors struct {
	t       testing.TB
	ident   string
	g       generation
	pages   []heldPage
	dir     int      // a directory stream, read half way
	rest    []dirent // what it must still give
	find    *os.File // a lookup's handle, which is a lease
	half    *os.File // a page that is half written
	staging staging
}

func openSurvivors(t testing.TB, ident string, g generation) *survivors {
	t.Helper()
	s := &survivors{t: t, ident: ident, g: g}
	for _, p := range g.pages() {
		f, err := os.Open(filepath.Join(ident, g.name(), p.path))
		must(t, err)
		mem, err := unix.Mmap(int(f.Fd()), 0, int(p.bytes), unix.PROT_READ, unix.MAP_SHARED)
		must(t, err)
		s.pages = append(s.pages, heldPage{file: f, mem: mem, page: p})
	}
	s.dir = openDir(t, ident)
	all, err := readAllDirents(s.dir, 32<<10)
	must(t, err)
	first := seekAndRead(t, s.dir, 0, 300)
	s.rest = all[len(first):]
	s.find, err = openFind(ident)
	must(t, err)
	r, err := converse(s.find, findRequest{Tokens: g.Tokens}.bytes())
	must(t, err)
	if r.Generation != g.name() {
		t.Fatalf("found %+v", r)
	}
	s.staging = beginStaging(t, ident, "half", smallGeneration(g.ID, conversation(77, 1000)))
	p := s.staging.g.pages()[0]
	must(t, os.MkdirAll(filepath.Dir(s.staging.file(p.path)), 0o755))
	s.half, err = os.OpenFile(s.staging.file(p.path), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	must(t, err)
	must(t, second(s.half.Write(pageRange(p, 0, 0, p.bytes/2))))
	return s
}

// check uses everything once more without using it up.
func (s *survivors) check() {
	s.t.Helper()
	for _, h := range s.pages {
		must(s.t, h.check())
	}
	var st unix.Stat_t
	must(s.t, unix.Fstat(s.dir, &st))
	p := s.staging.g.pages()[0]
	buf := make([]byte, p.bytes/2)
	must(s.t, second(s.half.ReadAt(buf, 0)))
	must(s.t, checkBytes(p, 0, 0, buf))
}

// finish takes everything to its end.
func (s *survivors) finish() {
	s.t.Helper()
	s.check()
	for _, h := range s.pages {
		must(s.t, h.release())
	}
	rest, err := readAllDirents(s.dir, 300)
	must(s.t, err)
	seen := map[string]bool{}
	for _, d := range rest {
		if seen[d.name] {
			s.t.Errorf("the stream gives %s twice", d.name)
		}
		seen[d.name] = true
	}
	for _, d := range s.rest {
		if !seen[d.name] {
			s.t.Errorf("the stream that was open all the time does not give %s", d.name)
		}
	}
	must(s.t, unix.Close(s.dir))
	r, err := converse(s.find, findRequest{Tokens: s.g.Tokens}.bytes())
	must(s.t, err)
	if r.Generation != s.g.name() {
		s.t.Errorf("the old .find handle finds %+v", r)
	}
	must(s.t, s.find.Close())

	p := s.staging.g.pages()[0]
	wantErrno(s.t, "publication with a page half written", s.staging.rename(), unix.EBUSY)
	must(s.t, second(s.half.Write(pageRange(p, 0, p.bytes/2, p.bytes))))
	must(s.t, s.half.Close())
	s.staging.complete(s.t)
	must(s.t, s.staging.rename())
	must(s.t, checkGeneration(s.staging.target(), s.staging.g))
}

// startLoads runs every kind of load; base is published for the whole run.
func startLoads(t *testing.T, m *mount) (ls loads, ident string, base []generation) {
	t.Helper()
	id := newIdentity("base", 2)
	ident = m.addIdentity(t, "model", id)
	for i := range 40 {
		g := smallGeneration(id, conversation(uint64(500+i/4), 600+100*(i%4)))
		publish(t, ident, g)
		base = append(base, g)
	}
	start := func(kind string, ident string, id identity) {
		ls = append(ls, startLoad(t, loadConfig{Kind: kind, Mount: m.path, Ident: ident, ID: id, Base: base,
			Seed: suite.seed%1000003 + uint64(len(ls))}))
	}
	for i := range 2 {
		id := newIdentity(fmt.Sprint("publisher", i), 2)
		start("publisher", m.addIdentity(t, "model", id), id)
	}
	racers := newIdentity("racers", 4)
	start("racer", m.addIdentity(t, "model", racers), racers)
	for _, kind := range []string{"reader", "lister", "names"} {
		start(kind, ident, id)
	}
	return ls, ident, base
}

// TestDaemonKilled kills the daemon at random moments of every kind of work.
func TestDaemonKilled(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		t.Logf("seed %d", suite.seed)
		rnd := rand.New(rand.NewPCG(suite.seed, 2))
		m := mountFS(t, md)
		ls, ident, base := startLoads(t, m)
		kept := openSurvivors(t, ident, base[3])
		for range kills {
			ls.advance(t, int64(1+rnd.IntN(60)))
			old := m.killDaemon()
			eventually(t, "another daemon serves", func() error { return m.servedByOther(old) })
			kept.check()
		}
		ls.advance(t, 20)
		ls.finish(t)
		kept.finish()
		for _, g := range base {
			must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		}
	})
}

// TestDaemonKilledInARow kills each new daemon as soon as it says that it serves.
func TestDaemonKilledInARow(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 20)
		kept := openSurvivors(t, ident, gens[3])
		for i := range kills {
			old := m.killDaemon()
			g := smallGeneration(gens[0].ID, conversation(uint64(100+i), 300))
			publish(t, ident, g) // begun while nobody serves
			must(t, m.servedByOther(old))
		}
		kept.finish()
	})
}

// TestUpgrade replaces the binary under load.
func TestUpgrade(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := newMount(t, md)
		m.binary = filepath.Join(m.dir, "ckptfs")
		must(t, copyFile(suite.binary, m.binary, 0o755))
		m.start()
		ls, ident, base := startLoads(t, m)
		kept := openSurvivors(t, ident, base[3])
		for range 3 {
			ls.advance(t, 10)
			old, err := m.status()
			must(t, err)
			must(t, copyFile(suite.binary, m.binary, 0o755)) // another file by the same name
			if out, err := m.ctl("upgrade", m.path); err != nil {
				t.Fatalf("ckptfs upgrade: %v\n%s", err, out)
			}
			eventually(t, "another daemon serves", func() error { return m.servedByOther(old.PID) })
			now, err := m.status()
			must(t, err)
			running, want := stat2(t, fmt.Sprintf("/proc/%d/exe", now.PID)), stat2(t, m.binary)
			if running != want {
				t.Error("after the upgrade another file than the new binary serves")
			}
			if now.KeeperPID != old.KeeperPID {
				t.Error("the keeper was replaced")
			}
			kept.check()
		}
		ls.finish(t)
		kept.finish()
	})
}

// TestDaemonHangs: a daemon that is stopped is replaced like one that was killed; callers wait until then.
func TestDaemonHangs(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--watchdog=1s")
	ident, gens := removalSetup(t, m, 20)
	kept := openSurvivors(t, ident, gens[3])
	old, err := m.status()
	must(t, err)
	m.expectKilled()
	for _, text := range []string{"SIGQUIT", "does not answer and is replaced"} {
		m.expectWarn(text)
	}
	must(t, unix.Kill(old.PID, unix.SIGSTOP))
	publish(t, ident, smallGeneration(gens[0].ID, conversation(100, 300)))
	must(t, m.servedByOther(old.PID))
	kept.finish()
}

// TestKilledWhilePagesAreOpened: whatever the daemon was about to tell the kernel of pages that are opened and closed,
// nothing keeps their memory when they have been removed.
func TestKilledWhilePagesAreOpened(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 1)
		dir := filepath.Join(ident, gens[0].name())
		var stop atomic.Bool
		var wg sync.WaitGroup
		for first := range 3 {
			wg.Go(func() {
				pages := gens[0].pages()
				for i := first; !stop.Load(); i++ {
					f, err := os.Open(filepath.Join(dir, pages[i%len(pages)].path))
					if err != nil {
						t.Error(err)
						return
					}
					f.Close()
				}
			})
		}
		for range 2 * kills {
			time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
			must(t, m.servedByOther(m.killDaemon()))
		}
		stop.Store(true)
		wg.Wait()
		must(t, os.RemoveAll(dir))
		eventually(t, "the RAM tier is empty", func() error {
			if used := m.whole(t).RAM.UsedBytes; used != 0 {
				return fmt.Errorf("%d bytes are used", used)
			}
			return nil
		})
	})
}
