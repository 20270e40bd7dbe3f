package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ckptfs/fusefs/client"
)

const fewGenerations = 1_000

// belowLimit is n, less where the default --max-generations of 65,536 would leave
// no room for what is published besides.
func belowLimit(n int) int { return min(n, 65_536-64) }

func (b *bench) manyGenerations() int {
	if b.o.quick {
		return 10_000
	}
	return belowLimit(65_536)
}

// scaled gives the identity directories of a large and of a small store.
func (b *bench) scaled() (many, few string, err error) {
	for _, x := range []struct {
		n  int
		to *string
	}{{b.manyGenerations(), &many}, {fewGenerations, &few}} {
		m, err := b.filled(x.n)
		if err != nil {
			return "", "", err
		}
		if *x.to, err = m.identify(tinyPage); err != nil {
			return "", "", err
		}
	}
	return many, few, nil
}

// findRow looks up 200,000 tokens with the hit near the end: open, write, read,
// close of .find.
func findRow(b *bench, r *result) error {
	many, few, err := b.scaled()
	if err != nil {
		return err
	}
	l := lookups(requestTokens)[0]
	t, err := b.interleave(4*b.o.repeats, pair{
		ours: func() (time.Duration, error) { return b.findOnce(many, l) },
		base: func() (time.Duration, error) { return b.findOnce(few, l) },
	})
	if err != nil {
		return err
	}
	r.delays(t)
	r.atMost(1.2)
	r.andAtMost(3)
	r.Limit = fmt.Sprintf("hashing %.2g ms", hashTime(requestTokens).Seconds()*1e3)
	r.note("%d generations", b.manyGenerations())
	return nil
}

// findOnce is one lookup by a process of its own; a hit where there should be
// none, and the reverse, is an error.
func (b *bench) findOnce(identityDir string, l lookup) (time.Duration, error) {
	d, outcomes, err := b.together(job{Op: "find", Paths: []string{filepath.Join(identityDir, ".find")},
		Seed: l.seed, NumTokens: l.numTokens, Diverges: l.diverges})
	if err != nil {
		return 0, err
	}
	var reply client.Reply
	if err := json.Unmarshal([]byte(outcomes[0].Reply), &reply); err != nil {
		return 0, fmt.Errorf("the reply %q: %w", outcomes[0].Reply, err)
	}
	if l.hit != (reply.Generation != "") {
		return 0, fmt.Errorf("%s: the lookup answered %q", l.name, outcomes[0].Reply)
	}
	return d, nil
}

// publishRow measures the rename alone; the pages are there and are tiny.
func publishRow(b *bench, r *result) error {
	many, few, err := b.scaled()
	if err != nil {
		return err
	}
	t, err := b.interleave(3*b.o.repeats, pair{
		ours: func() (time.Duration, error) { return b.publishOnce(many) },
		base: func() (time.Duration, error) { return b.publishOnce(few) },
	})
	if err != nil {
		return err
	}
	r.delays(t)
	r.atMost(1.2)
	r.andAtMost(5)
	r.note("%d generations", b.manyGenerations())
	commit, err := b.commitTime()
	r.Limit = fmt.Sprintf("index commit %.2g ms", commit.Seconds()*1e3)
	return err
}

// publishManifest is a generation of 224 pages that shares none: 4 ranks, each
// with 40 attention pages, 15 recurrent ones and an auxiliary one.
func publishManifest(seed int64) client.Manifest {
	const n = 40_239
	return hybridManifest(seed, n, client.KindPrompt, count(0, (n-1)/pageTokens+1), publishPages/worldSize-41, tinyPage)
}

func (b *bench) publishOnce(identityDir string) (time.Duration, error) {
	seed := 1e6 + b.count.Add(1)
	s, plan, err := b.stage(identityDir, seed, publishManifest(seed))
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if len(plan.Missing) != publishPages {
		return 0, fmt.Errorf("a new generation misses %d pages, not %d", len(plan.Missing), publishPages)
	}
	if err := writeMissing(s, plan); err != nil {
		return 0, err
	}
	d, _, err := b.together(job{Op: "rename", Paths: []string{s.Dir(), filepath.Join(identityDir, plan.Generation)}})
	return d, err
}

// replayRow stages what is published, and looks for bytes and files that came
// of it.
func replayRow(b *bench, r *result) error {
	m, err := b.named("large", largeL1)
	if err != nil {
		return err
	}
	dir, err := m.identify(tinyPage)
	if err != nil {
		return err
	}
	manifest := publishManifest(-3)
	if _, err := b.store(dir, -3, manifest); err != nil {
		return err
	}
	before, err := m.status()
	if err != nil {
		return err
	}
	filesBefore, err := countFiles(filepath.Join(m.state, "ram", "p"))
	if err != nil {
		return err
	}
	var took []float64
	for range b.o.repeats {
		began := time.Now()
		s, plan, err := b.stage(dir, -3, manifest)
		if err != nil {
			return err
		}
		p, err := s.Publish(b.ctx)
		took = append(took, time.Since(began).Seconds()*1e3)
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
		if !plan.Published || len(plan.Missing) > 0 || !p.Replay {
			return errors.New("a replay was not recognized")
		}
	}
	after, err := m.status()
	if err != nil {
		return err
	}
	filesAfter, err := countFiles(filepath.Join(m.state, "ram", "p"))
	bytes, files := after.RAM.UsedBytes-before.RAM.UsedBytes, filesAfter-filesBefore
	r.Unit, r.Ours = "ms", statOf(took)
	r.Target, r.Met = "0 bytes, 0 files", bytes == 0 && files == 0
	r.note("%d bytes and %d files were written by %d replays of %d pages, from mkdir to the end", bytes, files, b.o.repeats, publishPages)
	return err
}

func countFiles(dir string) (int, error) {
	n := 0
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	})
	return n, err
}

// startRow takes the time of the large store's first start, which finds what a
// death of all processes leaves, and of starts after a stop in peace, until the
// answer to a first lookup.
func startRow(b *bench, r *result) error {
	m, err := b.filled(b.manyGenerations())
	if err != nil {
		return err
	}
	took := []float64{m.took.Seconds() * 1e3} // as after a death of all processes, see fill
	used, err := m.residentBytes()            // after lookups and publications, if their rows were run
	if err != nil {
		return err
	}
	var first, rest int64
	for range min(b.o.repeats, 2) {
		d, err := b.restart(m)
		if err != nil {
			r.note("a stop and a further start failed: %.200v", err)
			break
		}
		took = append(took, d.Seconds()*1e3)
		if first, err = m.residentBytes(); err != nil {
			return err
		}
		if err := m.awaitRest(); err != nil {
			return err
		}
		if rest, err = m.residentBytes(); err != nil {
			return err
		}
	}
	r.Unit, r.Ours = "ms", statOf(took)
	r.Target = "≤ 1000 ms, ≤ 512 MiB"
	r.Met = r.Ours.Median <= 1000 && max(used, first, rest) <= 512<<20
	size, err := indexBytes(m.state)
	r.note("%d generations, index %d MiB on disk; daemon resident: %d MiB at the first answer, %d when all pages in RAM are taken up, %d after more work",
		b.manyGenerations(), size>>20, first>>20, rest>>20, used>>20)
	return err
}

// restart stops the mount and starts it; the time is from the start of the
// process until a lookup has been answered.
func (b *bench) restart(m *mounted) (time.Duration, error) {
	if err := m.stop(); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := m.start(); err != nil {
		return 0, err
	}
	dir, err := m.identify(tinyPage)
	if err != nil {
		return 0, err
	}
	if _, err := b.findOnce(dir, lookups(requestTokens)[0]); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

func indexBytes(state string) (n int64, err error) {
	names, err := filepath.Glob(filepath.Join(state, "index.db*"))
	for _, name := range names {
		if st, serr := os.Stat(name); serr == nil {
			n += st.Size()
		}
	}
	return n, err
}
