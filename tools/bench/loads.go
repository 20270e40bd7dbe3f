package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// load is work of other clients that must not keep anybody from opening a page
// that is in RAM.
type load struct {
	pages   []string     // in RAM; they are opened meanwhile
	prepare func() error // before each run, not measured; may be nil
	run     func() error
	end     func() error // may be nil
}

// loadKind makes a load, and what it needs, once.
type loadKind struct {
	name, what string
	make       func(*bench) (*load, error)
}

var loadKinds = []loadKind{
	{"list", "ls -l of the identity with all generations, again and again", listLoad},
	{"find", "lookups of 200,000 tokens that find nothing, again and again", findLoad},
	{"rm", fmt.Sprintf("rm -r of a generation of %d pages", removedPages), removeLoad},
	{"slow-disk", fmt.Sprintf("four processes read generations that are on the disk alone, of which the daemon may read %d MB a second", slowBytes/1_000_000), slowDiskLoad},
	{"disk", "the same from the disk as it is, as fast as the CPUs can", diskLoad},
	{"flush", "fsync of a generation that is in RAM alone", flushLoad},
}

const removedPages = 20_000

// besideStore gives the directory of the identity of a store, and a load with
// pages in RAM to be opened.
func (b *bench) besideStore() (string, *load, error) {
	m, err := b.filled(belowLimit(b.o.generations))
	if err != nil {
		return "", nil, err
	}
	dir, err := m.identify(tinyPage)
	if err != nil {
		return "", nil, err
	}
	l, err := b.loadOn(m)
	return dir, l, err
}

// besideDisk gives a generation on the disk alone, and a load with pages in RAM to
// be opened.
func (b *bench) besideDisk() (*onDisk, *load, error) {
	d, err := b.onDisk()
	if err != nil {
		return nil, nil, err
	}
	l, err := b.loadOn(d.m)
	return d, l, err
}

// loadOn begins a load with pages in the mount's RAM.
func (b *bench) loadOn(m *mounted) (*load, error) {
	dir, err := m.identify(smallPage)
	if err != nil {
		return nil, err
	}
	const n = 64
	g, err := b.store(dir, -1, evenManifest(-1, n, smallPage))
	if err != nil {
		return nil, err
	}
	l := &load{}
	for _, paths := range rankPaths(g, n) {
		l.pages = append(l.pages, paths...)
	}
	// An open directory keeps the pages in RAM.
	hold, err := os.Open(g)
	if err != nil {
		return nil, err
	}
	b.held = append(b.held, hold)
	return l, nil
}

func listLoad(b *bench) (*load, error) {
	dir, l, err := b.besideStore()
	if err != nil {
		return nil, err
	}
	l.run = func() error { return exec.CommandContext(b.ctx, "ls", "-l", dir).Run() }
	return l, nil
}

func findLoad(b *bench) (*load, error) {
	dir, l, err := b.besideStore()
	if err != nil {
		return nil, err
	}
	misses := lookups(requestTokens)
	miss := misses[len(misses)-1]
	l.run = func() error { _, err := b.findOnce(dir, miss); return err }
	return l, nil
}

func removeLoad(b *bench) (*load, error) {
	dir, l, err := b.besideStore()
	if err != nil {
		return nil, err
	}
	var gen string
	l.prepare = func() (err error) {
		seed := 1e9 + b.count.Add(1)
		m := evenManifest(seed, removedPages/worldSize, tinyPage)
		m.PageGroups[0].PageTokens = 256
		m.NumTokens = 256 * removedPages / worldSize
		gen, err = b.store(dir, seed, m)
		return err
	}
	l.run = func() error { return exec.CommandContext(b.ctx, "rm", "-r", gen).Run() }
	return l, nil
}

func diskLoad(b *bench) (*load, error) {
	_, l, err := b.diskReads()
	return l, err
}

// diskReads begins a load that reads seven generations in turn, of which RAM holds
// less than five.
func (b *bench) diskReads() (*onDisk, *load, error) {
	d, l, err := b.besideDisk()
	if err != nil {
		return nil, nil, err
	}
	identity := filepath.Dir(d.dir)
	gens := []string{d.dir}
	for range 6 {
		d.seed++
		g, err := b.storeRandom(identity, d.seed, d.perRank)
		if err != nil {
			return nil, nil, err
		}
		gens = append(gens, g)
	}
	next := 0
	// Copying a huge page to memory that a virtual machine has given back keeps a
	// CPU for some ms, whatever waits for it: see warmMemory.
	l.prepare = func() error {
		if objects, err := objectFiles(filepath.Join(d.m.state, "disk")); err != nil {
			return err
		} else if err := dropFiles(objects); err != nil {
			return err
		}
		return warmMemory(int64(worldSize*d.perRank) * largePage)
	}
	l.run = func() error {
		next++
		_, err := b.readOnce("read", gens[next%len(gens)], d.perRank, largePage)
		return err
	}
	return d, l, nil
}

// slowBytes a second is what a hard disk or a disk over the network gives.
const slowBytes = 100_000_000

// slowDiskLoad is diskLoad where the disk is what is waited for, not a CPU.
func slowDiskLoad(b *bench) (*load, error) {
	d, l, err := b.diskReads()
	if err != nil {
		return nil, err
	}
	s, err := d.m.status()
	if err != nil {
		return nil, err
	}
	l.end, err = slowDisk(s.PID, d.m.state, slowBytes)
	return l, err
}

// flushLoad has a generation written to the disk because somebody waits for it.
func flushLoad(b *bench) (*load, error) {
	d, l, err := b.besideDisk()
	if err != nil {
		return nil, err
	}
	var gen string
	seed := int64(2 << 40)
	l.prepare = func() (err error) {
		if gen != "" {
			if err := os.RemoveAll(gen); err != nil {
				return err
			}
		}
		seed++
		gen, err = b.storeRandom(filepath.Dir(d.dir), seed, d.perRank)
		return err
	}
	l.run = func() error {
		dir, err := os.Open(gen)
		if err != nil {
			return err
		}
		defer dir.Close()
		return dir.Sync()
	}
	return l, nil
}

// scalePoint is how much so many clients get done together.
type scalePoint struct {
	Work      string  `json:"work"`
	Processes int     `json:"processes"`
	Threads   int     `json:"threads"`
	Ours      float64 `json:"pages_per_second"`
	OursGain  float64 `json:"gain"` // against one thread of one process
	Plain     float64 `json:"plain_pages_per_second"`
	PlainGain float64 `json:"plain_gain"`
}

const (
	scalingName   = "scaling"
	scaledPages   = 64 // of each process
	readRounds    = 8  // how often each process reads its pages
	scalingStores = "store"
	scalingReads  = "open, read, close"
)

// scaling measures ranks that open, read and close pages in RAM, and ranks that
// store them, alone and together, and the same with files in /dev/shm.
func (b *bench) scaling() ([]*scalePoint, error) {
	m, err := b.named("large", largeL1)
	if err != nil {
		return nil, err
	}
	dir, err := m.identify(smallPage)
	if err != nil {
		return nil, err
	}
	ours, err := b.store(dir, -1, evenManifest(-1, scaledPages, smallPage))
	if err != nil {
		return nil, err
	}
	plain := filepath.Join(b.shm, "scaling")
	if err := b.writePlain(plain, scaledPages, smallPage); err != nil {
		return nil, err
	}
	defer os.RemoveAll(plain)
	reads := func(at string, processes, threads int) (float64, error) {
		return b.rate("read", at, processes, threads, readRounds)
	}
	var points []*scalePoint
	for _, w := range []struct {
		name        string
		ours, plain func(processes, threads int) (float64, error)
	}{
		{scalingReads,
			func(p, t int) (float64, error) { return reads(ours, p, t) },
			func(p, t int) (float64, error) { return reads(plain, p, t) }},
		{scalingStores,
			func(p, t int) (float64, error) { return b.storeRate(dir, p, t) },
			func(p, t int) (float64, error) { return b.plainStoreRate(p, t) }},
	} {
		ps, err := b.scalingOf(w.name, w.ours, w.plain)
		if err != nil {
			return nil, err
		}
		points = append(points, ps...)
	}
	return points, nil
}

func (b *bench) scalingOf(work string, ours, plain func(processes, threads int) (float64, error)) (points []*scalePoint, err error) {
	for _, processes := range []int{1, 2, 4} {
		for _, threads := range []int{1, 4} {
			p := &scalePoint{Work: work, Processes: processes, Threads: threads}
			if p.Ours, err = b.medianRate(func() (float64, error) { return ours(processes, threads) }); err != nil {
				return nil, err
			}
			if p.Plain, err = b.medianRate(func() (float64, error) { return plain(processes, threads) }); err != nil {
				return nil, err
			}
			points = append(points, p)
			p.OursGain, p.PlainGain = p.Ours/points[0].Ours, p.Plain/points[0].Plain
		}
	}
	return points, nil
}

func (b *bench) medianRate(f func() (float64, error)) (float64, error) {
	var xs []float64
	for i := range b.o.repeats + 1 {
		x, err := f()
		if err != nil {
			return 0, err
		}
		if i > 0 { // the first warms up
			xs = append(xs, x)
		}
	}
	return statOf(xs).Median, nil
}

// rate has the first ranks do their part, and gives pages per second.
func (b *bench) rate(op, dir string, processes, threads, rounds int) (float64, error) {
	jobs := rankJobs(op, dir, scaledPages, smallPage)[:processes]
	for i := range jobs {
		jobs[i].Threads, jobs[i].Rounds = threads, rounds
	}
	d, _, err := b.together(jobs...)
	return float64(processes*scaledPages*rounds) / d.Seconds(), err
}

// storeRate writes pages into a staging that is given up then.
func (b *bench) storeRate(dir string, processes, threads int) (float64, error) {
	seed := 3<<40 + b.count.Add(1)
	s, _, err := b.stage(dir, seed, evenManifest(seed, scaledPages, smallPage))
	if err != nil {
		return 0, err
	}
	rate, err := b.rate("write", s.Dir(), processes, threads, 1)
	if err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	return rate, os.RemoveAll(s.Dir())
}

func (b *bench) plainStoreRate(processes, threads int) (float64, error) {
	dir := filepath.Join(b.shm, "scaling-store")
	if err := makeRankDirs(dir); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	return b.rate("write", dir, processes, threads, 1)
}
