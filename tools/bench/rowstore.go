package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ckptfs/fusefs/client"
)

// storeRow writes a generation's pages from four processes, each its own rank's,
// and the same files in the same layout to /dev/shm.
func storeRow(b *bench, r *result) error {
	m, err := b.named("large", largeL1)
	if err != nil {
		return err
	}
	dir, err := m.identify(largePage)
	if err != nil {
		return err
	}
	n := b.pagesPerRank()
	bytes := int64(worldSize*n) * largePage
	var whole []time.Duration
	t, err := b.interleave(b.o.repeats, pair{
		ours: warmed(bytes, func() (time.Duration, error) {
			d, all, err := b.storeOnce(dir, n)
			whole = append(whole, all)
			return d, err
		}),
		base:  warmed(bytes, func() (time.Duration, error) { return b.storePlain(filepath.Join(b.shm, "store"), n) }),
		limit: warmed(bytes, b.onHuge(func(dir string) (time.Duration, error) { return b.storePlain(dir, n) })),
	})
	if err != nil {
		return err
	}
	r.speeds(t, bytes)
	r.atLeast(2)
	r.hugeLimit(t, bytes)
	r.note("a page: %.0f µs, in /dev/shm %.0f µs (four processes at a time)", perPage(t.ours, n), perPage(t.base, n))
	copied, err := b.memcpySpeed(worldSize)
	r.note("memcpy by four processes: %.3g GB/s", copied)
	r.note("%d pages from mkdir of the staging to the end of rename: %.3g GB/s", worldSize*n,
		statOf(each(whole[1:], func(d time.Duration) float64 { return float64(bytes) / 1e9 / d.Seconds() })).Median)
	return err
}

// perPage is the median time in which each process wrote or read a page, µs.
func perPage(ds []time.Duration, n int) float64 {
	return statOf(each(ds, func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(n) })).Median
}

// storeOnce stores one generation and deletes it. pages is the time of the
// writing processes, all that of the whole protocol.
func (b *bench) storeOnce(identityDir string, perRank int) (pages, all time.Duration, err error) {
	seed := b.count.Add(1)
	before := time.Now()
	s, plan, err := b.stage(identityDir, seed, evenManifest(seed, perRank, largePage))
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	all = time.Since(before)
	if len(plan.Missing) != worldSize*perRank {
		return 0, 0, fmt.Errorf("a new generation misses %d pages, not %d", len(plan.Missing), worldSize*perRank)
	}
	if pages, _, err = b.together(rankJobs("write", s.Dir(), perRank, largePage)...); err != nil {
		return 0, 0, err
	}
	before = time.Now()
	p, err := s.Publish(b.ctx)
	if err != nil {
		return 0, 0, err
	}
	return pages, all + pages + time.Since(before), os.RemoveAll(p.Dir)
}

// storePlain writes the same files to an ordinary directory and removes them.
func (b *bench) storePlain(dir string, perRank int) (time.Duration, error) {
	if err := makeRankDirs(dir); err != nil {
		return 0, err
	}
	d, _, err := b.together(rankJobs("write", dir, perRank, largePage)...)
	if err != nil {
		return 0, err
	}
	return d, os.RemoveAll(dir)
}

func makeRankDirs(dir string) error {
	for r := range worldSize {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, client.PagePath(r, attention, 0))), 0o755); err != nil {
			return err
		}
	}
	return nil
}
