package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Several processes at once (contract section 3, step 5).

const raceRounds = 200

// ranks starts one client process for each rank.
func ranks(t *testing.T, n int) []*agent {
	t.Helper()
	var list []*agent
	for range n {
		list = append(list, newAgent(t))
	}
	return list
}

// TestRanksRace: four ranks finish at about the same time and all rename. One
// gets 0, whichever; the others are told EBUSY or EEXIST; the generation is whole.
func TestRanksRace(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("race", 4)
		ident := m.addIdentity(t, "model", id)
		workers := ranks(t, 4)
		var tokens []uint32
		rounds := raceRounds
		if testing.Short() {
			rounds = 40
		}
		for round := range rounds {
			tokens = conversation(uint64(round/10), 300+20*(round%10)) // in tens, each shares with the one before
			g := smallGeneration(id, tokens)
			s := beginStaging(t, ident, fmt.Sprint("r", round), g)
			if round%2 == 0 {
				raceAfterPages(t, workers, s)
			} else {
				raceWithPages(t, workers, s)
			}
			must(t, checkGeneration(s.target(), g))
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
			if round%10 == 9 {
				for _, name := range names(t, ident) {
					if name != "identity.json" {
						must(t, os.RemoveAll(filepath.Join(ident, name)))
					}
				}
			}
		}
		if got := names(t, filepath.Join(ident, ".staging")); len(got) != 0 {
			t.Errorf(".staging lists %q", got)
		}
	})
}

// raceAfterPages: all pages are there before the first rename is sent.
func raceAfterPages(t *testing.T, workers []*agent, s staging) {
	t.Helper()
	for r, a := range workers {
		a.send(request{Op: "writerank", Path: s.ident, To: s.name, Gen: &s.g, Rank: r})
	}
	for _, a := range workers {
		must(t, a.receive().err())
	}
	for _, a := range workers {
		a.send(request{Op: "rename-staging", Path: s.ident, To: s.name, Gen: &s.g})
	}
	wantOneWinner(t, workers)
}

// raceWithPages: each rank renames as soon as its own pages are written.
func raceWithPages(t *testing.T, workers []*agent, s staging) {
	t.Helper()
	for r, a := range workers {
		a.send(request{Op: "writerank", Path: s.ident, To: s.name, Gen: &s.g, Rank: r})
		a.send(request{Op: "rename-staging", Path: s.ident, To: s.name, Gen: &s.g})
	}
	for _, a := range workers {
		must(t, a.receive().err())
	}
	wantOneWinner(t, workers)
}

func wantOneWinner(t *testing.T, workers []*agent) {
	t.Helper()
	won := 0
	var answers []error
	for r, a := range workers {
		err := a.receive().err()
		answers = append(answers, err)
		if err == nil {
			won++
		} else {
			wantOneOf(t, fmt.Sprintf("rename by rank %d", r), err, syscall.EBUSY, syscall.EEXIST)
		}
	}
	if won != 1 {
		t.Errorf("%d renames returned 0, want 1: %v", won, answers)
	}
}

// TestSameGenerationTwice stages one generation twice at once, with different
// bytes. Both get along; every published page is one copy, whole.
func TestSameGenerationTwice(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("twice", 2)
		ident := m.addIdentity(t, "model", id)
		workers := ranks(t, 2)
		for round := range 40 {
			g := shapedGeneration(id, conversation(uint64(round), 700), 128, 64<<10)
			for i, a := range workers {
				a.send(request{Op: "begin", Path: ident, To: fmt.Sprint("w", i), Gen: &g})
				a.send(request{Op: "writerank", Path: ident, To: fmt.Sprint("w", i), Gen: &g, Rank: -1, Copy: i + 1})
				a.send(request{Op: "rename-staging", Path: ident, To: fmt.Sprint("w", i), Gen: &g})
			}
			won := 0
			for i, a := range workers {
				must(t, a.receive().err())
				must(t, a.receive().err())
				switch err := a.receive().err(); errnoOf(err) {
				case 0:
					won++
				case syscall.EEXIST:
					must(t, os.RemoveAll(filepath.Join(ident, ".staging", fmt.Sprint("w", i))))
				default:
					t.Errorf("round %d: rename of staging %d: %v", round, i, err)
				}
			}
			if won != 1 {
				t.Fatalf("round %d: %d renames returned 0", round, won)
			}
			must(t, checkGeneration(filepath.Join(ident, g.name()), g, 1, 2))
			must(t, os.RemoveAll(filepath.Join(ident, g.name())))
		}
	})
}

// TestOverlappingInFlight: two generations that share pages are written at the
// same time, by processes of which one is killed at some point.
func TestOverlappingInFlight(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--staging-timeout", "1s")
		id := newIdentity("overlap", 1)
		ident := m.addIdentity(t, "model", id)
		stays := newAgent(t)
		for round := range 15 {
			short := shapedGeneration(id, conversation(uint64(round), 1500), 64, smallPage)
			long := shapedGeneration(id, conversation(uint64(round), 2500), 64, smallPage)
			dies := newAgent(t)
			dies.do(request{Op: "begin", Path: ident, To: fmt.Sprint("dies", round), Gen: &short})
			stays.do(request{Op: "begin", Path: ident, To: "stays", Gen: &long})
			dies.send(request{Op: "writerank", Path: ident, To: fmt.Sprint("dies", round), Gen: &short, Rank: -1, Copy: 1})
			stays.send(request{Op: "writerank", Path: ident, To: "stays", Gen: &long, Rank: -1, Copy: 2})
			if round%3 == 0 {
				must(t, stays.receive().err())
			} else { // in the middle of its writing, as soon as some of it is seen
				waitFor(patience, func() bool { return len(namesIfAny(dies1(ident, round))) > round%3*4 })
			}
			dies.kill()
			if round%3 != 0 {
				must(t, stays.receive().err())
			}
			// Its own last page may have been skipped because the dead one was writing it:
			// what is missing is in the plan, and is written now.
			stays.do(request{Op: "writerank", Path: ident, To: "stays", Gen: &long, Rank: -1, Copy: 2})
			stays.do(request{Op: "rename-staging", Path: ident, To: "stays", Gen: &long})
			must(t, checkGeneration(filepath.Join(ident, long.name()), long, 1, 2))
		}
		eventually(t, "the killed process' stagings go", func() error {
			if left := names(t, filepath.Join(ident, ".staging")); len(left) > 0 {
				return fmt.Errorf("%q are left", left)
			}
			return nil
		})
	})
}

func dies1(ident string, round int) string {
	return filepath.Join(ident, ".staging", fmt.Sprint("dies", round), "rank-0", "target.attention.0")
}

// namesIfAny lists a directory that need not be there.
func namesIfAny(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestReadersPoll: readers poll for a generation while it is written slowly.
// They see nothing, and then, at one instant, all of it.
func TestReadersPoll(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("poll", 1)
		ident := m.addIdentity(t, "model", id)
		writer, readers := newAgent(t), ranks(t, 2)
		for round := range 10 {
			g := shapedGeneration(id, conversation(uint64(round), 1000), 100, 64<<10)
			s := beginStaging(t, ident, "slow", g)
			for _, a := range readers {
				a.send(request{Op: "waitfor", Path: s.target(), Gen: &g})
			}
			for _, p := range g.pages() { // in small pieces, each by its own call
				must(t, os.MkdirAll(filepath.Dir(s.file(p.path)), 0o755))
				fd := int(writer.do(request{Op: "open", Path: s.file(p.path), Flags: os.O_CREATE | os.O_EXCL | os.O_WRONLY, Mode: 0o644}).N)
				for off := int64(0); off < p.bytes; off += 16 << 10 {
					writer.do(request{Op: "write", FD: fd, Page: wire(p), Off: off, Len: 16 << 10})
				}
				writer.do(request{Op: "close", FD: fd})
			}
			writer.do(request{Op: "rename-staging", Path: ident, To: "slow", Gen: &g})
			for i, a := range readers {
				if err := a.receive().err(); err != nil {
					t.Errorf("round %d, reader %d: %v", round, i, err)
				}
			}
		}
	})
}

// waitForGeneration polls path by three ways at once until the generation is
// there; the first sight of it must be of the whole.
func waitForGeneration(path string, g generation) error {
	name, first, req := g.name(), g.pages()[0].path, findRequest{Tokens: g.Tokens}.bytes()
	for i := 0; ; i++ {
		switch i % 3 {
		case 0:
			if _, err := os.Stat(filepath.Join(path, first)); err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				return err
			}
		case 1:
			if !contains(namesIfAny(filepath.Dir(path)), filepath.Base(path)) {
				continue
			}
		case 2:
			f, err := openFind(filepath.Dir(path))
			if err != nil {
				return err
			}
			r, err := converse(f, req)
			f.Close()
			if err != nil {
				return err
			}
			if r.Generation != name {
				continue
			}
		}
		return checkGeneration(path, g)
	}
}
