package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fusefs/client"
)

// onDisk is a generation whose pages lie on the disk tier alone.
type onDisk struct {
	b       *bench
	m       *mounted
	dir     string
	objects []string // its files on the disk
	perRank int
	seed    int64
}

// onDisk stores a generation in a mount with room for it and a burst, see drainRow,
// and has it leave RAM, which writes it to the disk.
func (b *bench) onDisk() (*onDisk, error) {
	d := &onDisk{b: b, perRank: b.pagesPerRank(), seed: 1 << 40}
	l1 := fmt.Sprint(6 * int64(worldSize*d.perRank) * largePage)
	m, err := b.named("disk", l1)
	if err != nil {
		return nil, err
	}
	d.m = m
	if s, err := m.status(); err != nil {
		return nil, err
	} else if s.Disk == nil {
		return nil, errSkip{"this build has no disk tier"}
	}
	identity, err := m.identify(largePage)
	if err != nil {
		return nil, err
	}
	if d.dir, err = b.storeRandom(identity, -1, d.perRank); err != nil {
		return nil, err
	}
	if err := d.evict(1); err != nil {
		return nil, err
	}
	d.objects, err = objectFiles(filepath.Join(m.state, "disk"))
	if err == nil && len(d.objects) < worldSize*d.perRank {
		err = fmt.Errorf("%d objects on the disk for %d pages", len(d.objects), worldSize*d.perRank)
	}
	return d, err
}

// storeRandom stores a generation from the rank processes, whose bytes are not
// compressible.
func (b *bench) storeRandom(identity string, seed int64, perRank int) (string, error) {
	s, plan, err := b.stage(identity, seed, evenManifest(seed, perRank, largePage))
	if err != nil {
		return "", err
	}
	defer s.Close()
	if len(plan.Missing) > 0 {
		if _, _, err := b.together(rankJobs("write", s.Dir(), perRank, largePage)...); err != nil {
			return "", err
		}
	}
	p, err := s.Publish(b.ctx)
	return p.Dir, err
}

// evict has all pages leave RAM, as they do under pressure: the daemon goes on
// running. What the kernel may cache of the disk's files goes too. Memory for so
// many generations is warmed.
func (d *onDisk) evict(generations int) error {
	out, err := exec.CommandContext(d.b.ctx, d.b.o.binary, "drop", "--ram", d.m.path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ckptfs drop --ram: %w\n%s", err, out)
	}
	if err := dropFiles(d.objects); err != nil {
		return err
	}
	return warmMemory(int64(generations*worldSize*d.perRank) * largePage)
}

func dropFiles(paths []string) error {
	for _, p := range paths {
		if err := dropCache(p, job{}); err != nil {
			return err
		}
	}
	return nil
}

// objectFiles lists the files of the disk tier that hold a large page.
func objectFiles(dir string) (paths []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if st, err := e.Info(); err == nil && st.Size() >= largePage/2 {
			paths = append(paths, path)
		}
		return nil
	})
	unix.Sync()
	return paths, err
}

// restore is what an engine does: it looks its tokens up, keeps the lease, and
// reads all pages from the rank processes. The lookup is part of the time.
func (d *onDisk) restore() (time.Duration, error) {
	began := monotonic()
	lease, err := client.Find(d.b.ctx, filepath.Dir(d.dir), tokens(-1, d.perRank*pageTokens), client.FindOptions{})
	if err != nil {
		return 0, err
	}
	defer lease.Close()
	if lease.Dir() != d.dir {
		return 0, fmt.Errorf("the lookup found %q, not %s", lease.Reply.Generation, d.dir)
	}
	_, outcomes, err := d.b.together(rankJobs("read", d.dir, d.perRank, largePage)...)
	if err != nil {
		return 0, err
	}
	return time.Duration(lastEnd(outcomes) - began), nil
}

// readOnly reads all pages without a lookup, as a backup does.
func (d *onDisk) readOnly() (time.Duration, error) {
	return d.b.readOnce("read", d.dir, d.perRank, largePage)
}

// direct reads the objects past the kernel's cache, as many at a time.
func (d *onDisk) direct() (time.Duration, error) {
	if err := dropFiles(d.objects); err != nil {
		return 0, err
	}
	jobs := make([]job, worldSize)
	for i, p := range d.objects {
		j := &jobs[i%worldSize]
		st, err := os.Stat(p)
		if err != nil {
			return 0, err
		}
		j.Op, j.Paths, j.Bytes = "readdirect", append(j.Paths, p), max(j.Bytes, st.Size())
	}
	t, _, err := d.b.together(jobs...)
	return t, err
}

// diskRow restores a generation that is on the disk alone, against reading the
// same files.
func diskRow(b *bench, r *result) error {
	d, err := b.onDisk()
	if err != nil {
		return err
	}
	t, err := b.interleave(min(b.o.repeats, 7), pair{
		ours: func() (time.Duration, error) {
			if err := d.evict(1); err != nil {
				return 0, err
			}
			return d.restore()
		},
		base: d.direct,
	})
	if err != nil {
		return err
	}
	r.speeds(t, int64(worldSize*d.perRank)*largePage)
	r.atLeast(0.9)
	r.Limit = fmt.Sprintf("direct read %.3g GB/s", r.Baseline.Median)
	return d.noteUnannounced(r)
}

// noteUnannounced says what reading without a lookup gives.
func (d *onDisk) noteUnannounced(r *result) error {
	var speeds []float64
	for range 5 {
		if err := d.evict(1); err != nil {
			return err
		}
		t, err := d.readOnly()
		if err != nil {
			return err
		}
		speeds = append(speeds, float64(worldSize*d.perRank)*largePage/1e9/t.Seconds())
	}
	r.note("read without a lookup, as a backup does: %.3g GB/s", statOf(speeds).Median)
	return nil
}

// drainRow restores the same while a burst of generations, stored just before and
// over the RAM tier's mark of 0.8, drains to the disk. RAM has room for both.
func drainRow(b *bench, r *result) error {
	d, err := b.onDisk()
	if err != nil {
		return err
	}
	var drained []float64 // MB written during each restore
	t, err := b.interleave(min(b.o.repeats, 7), pair{
		ours: func() (time.Duration, error) {
			if err := d.burst(); err != nil {
				return 0, err
			}
			before, err := d.writtenMB()
			if err != nil {
				return 0, err
			}
			took, err := d.restore()
			if err != nil {
				return 0, err
			}
			after, err := d.writtenMB()
			drained = append(drained, after-before)
			return took, err
		},
		base: func() (time.Duration, error) {
			if err := d.evict(1); err != nil {
				return 0, err
			}
			return d.restore()
		},
	})
	if err != nil {
		return err
	}
	r.delays(t)
	r.atMost(1.5)
	r.note("%.0f MB of the burst were written meanwhile, %.0f at least", statOf(drained).Median, statOf(drained).Min)
	return nil
}

// burst stores five generations of the size of the one on disk, but for a page of
// each rank: over the mark, with a sixth of the RAM tier left.
func (d *onDisk) burst() error {
	if err := d.evict(6); err != nil {
		return err
	}
	for _, perRank := range []int{d.perRank, d.perRank, d.perRank, d.perRank, d.perRank - 1} {
		d.seed++
		if _, err := d.b.storeRandom(filepath.Dir(d.dir), d.seed, perRank); err != nil {
			return err
		}
	}
	return nil
}

// writtenMB is what eviction has written to the disk.
func (d *onDisk) writtenMB() (float64, error) {
	s, err := d.m.status()
	return float64(s.Counters["written_evict_bytes"]) / 1e6, err
}
