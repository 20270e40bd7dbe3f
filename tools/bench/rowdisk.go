package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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

// onDisk stores a generation in a mount with room for three of its kind and
// stops it, which writes it to the disk and gives the RAM back.
func (b *bench) onDisk() (*onDisk, error) {
	d := &onDisk{b: b, perRank: b.pagesPerRank(), seed: 1 << 40}
	l1 := fmt.Sprint(3 * int64(worldSize*d.perRank) * largePage)
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
	if err := d.reload(); err != nil {
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

// reload stops and starts the mount, so that no page is in RAM, and has the
// kernel forget what it caches of the disk's files.
func (d *onDisk) reload() error {
	if err := d.m.stop(); err != nil {
		return err
	}
	if err := d.m.start(); err != nil {
		return err
	}
	return dropFiles(d.objects)
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

// restore reads all pages from the rank processes.
func (d *onDisk) restore() (time.Duration, error) {
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
			if err := d.reload(); err != nil {
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
	return nil
}

// drainRow restores the same while two generations, written just before, are
// over the RAM tier's mark and go to the disk.
func drainRow(b *bench, r *result) error {
	d, err := b.onDisk()
	if err != nil {
		return err
	}
	identity := filepath.Dir(d.dir)
	t, err := b.interleave(min(b.o.repeats, 7), pair{
		ours: func() (time.Duration, error) {
			if err := d.reload(); err != nil {
				return 0, err
			}
			for range 2 {
				d.seed++
				if _, err := b.storeRandom(identity, d.seed, d.perRank); err != nil {
					return 0, err
				}
			}
			return d.restore()
		},
		base: func() (time.Duration, error) {
			if err := d.reload(); err != nil {
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
	return nil
}
