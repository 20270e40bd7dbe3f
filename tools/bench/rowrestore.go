package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// restoreRow reads all pages of a published generation from four processes, and
// the same files from /dev/shm.
func restoreRow(op string, target float64) func(*bench, *result) error {
	return func(b *bench, r *result) error {
		n := b.pagesPerRank()
		ours, err := b.restorable("large", n, largePage)
		if err != nil {
			return err
		}
		plain := filepath.Join(b.shm, "restore")
		if err := b.writePlain(plain, n, largePage); err != nil {
			return err
		}
		defer os.RemoveAll(plain)
		limit := b.onHuge(func(dir string) (time.Duration, error) { return b.readOnce(op, dir, n, largePage) })
		if limit != nil {
			if err := b.writePlain(b.hugeDir(), n, largePage); err != nil {
				return err
			}
			defer os.RemoveAll(b.hugeDir())
		}
		t, err := b.interleave(b.o.repeats, pair{
			ours:  func() (time.Duration, error) { return b.readOnce(op, ours, n, largePage) },
			base:  func() (time.Duration, error) { return b.readOnce(op, plain, n, largePage) },
			limit: limit,
		})
		if err != nil {
			return err
		}
		bytes := int64(worldSize*n) * largePage
		r.speeds(t, bytes)
		r.atLeast(target)
		r.hugeLimit(t, bytes)
		r.note("a page: %.0f µs, in /dev/shm %.0f µs (four processes at a time)", perPage(t.ours, n), perPage(t.base, n))
		if op == "map" {
			return b.mapRead(r, ours, plain, n)
		}
		return nil
	}
}

// mapRead adds what comes of mappings whose every byte is then read. The memory's
// own speed, which is the same on both sides, counts for most of that.
func (b *bench) mapRead(r *result, ours, plain string, n int) error {
	t, err := b.interleave(b.o.repeats, pair{
		ours: func() (time.Duration, error) { return b.readOnce("mapread", ours, n, largePage) },
		base: func() (time.Duration, error) { return b.readOnce("mapread", plain, n, largePage) },
	})
	if err != nil {
		return err
	}
	var read result
	read.speeds(t, int64(worldSize*n)*largePage)
	r.note("every cache line touched: %s, in /dev/shm %s, %s", read.figure(read.Ours.Median), read.figure(read.Baseline.Median), read.ratio())
	return nil
}

// writePlain writes the files of n pages of each rank below dir.
func (b *bench) writePlain(dir string, n int, pageBytes int64) error {
	if err := makeRankDirs(dir); err != nil {
		return err
	}
	_, _, err := b.together(rankJobs("write", dir, n, pageBytes)...)
	return err
}

// restorable gives the directory of a published generation in the named mount,
// made once.
func (b *bench) restorable(mount string, perRank int, pageBytes int64, flags ...string) (string, error) {
	m, err := b.named(mount, largeL1, flags...)
	if err != nil {
		return "", err
	}
	dir, err := m.identify(pageBytes)
	if err != nil {
		return "", err
	}
	return b.store(dir, -1, evenManifest(-1, perRank, pageBytes))
}

func (b *bench) readOnce(op, dir string, perRank int, pageBytes int64) (time.Duration, error) {
	d, _, err := b.together(rankJobs(op, dir, perRank, pageBytes)...)
	return d, err
}

// ordinaryRow reads the same generation through a mount that moves all bytes
// through the daemon. What its kernel cache has is dropped before each run: a
// restore reads a page once.
func ordinaryRow(b *bench, r *result) error {
	n := b.pagesPerRank()
	ours, err := b.restorable("large", n, largePage)
	if err != nil {
		return err
	}
	off, err := b.restorable("ordinary", n, largePage, "--passthrough=off")
	if err != nil {
		return err
	}
	t, err := b.interleave(b.o.repeats, pair{
		ours: func() (time.Duration, error) { return b.readOnce("read", ours, n, largePage) },
		base: func() (time.Duration, error) {
			if _, err := b.readOnce("drop", off, n, largePage); err != nil {
				return 0, err
			}
			return b.readOnce("read", off, n, largePage)
		},
	})
	if err != nil {
		return err
	}
	r.speeds(t, int64(worldSize*n)*largePage)
	r.atLeast(6)
	again, err := b.readOnce("read", off, n, largePage)
	r.note("passthrough off, read again out of the kernel's cache, which holds the pages a second time: %.3g GB/s",
		float64(worldSize*n)*largePage/1e9/again.Seconds())
	return err
}

// smallRow opens, reads and closes small pages one by one.
func smallRow(b *bench, r *result) error {
	const n = 256
	ours, err := b.restorable("large", n, smallPage)
	if err != nil {
		return err
	}
	off, err := b.restorable("ordinary", n, smallPage, "--passthrough=off")
	if err != nil {
		return err
	}
	plain := filepath.Join(b.shm, "small")
	if err := makeRankDirs(plain); err != nil {
		return err
	}
	defer os.RemoveAll(plain)
	first := func(op, dir string) (time.Duration, error) {
		d, _, err := b.together(rankJobs(op, dir, n, smallPage)[0])
		return d, err
	}
	t, err := b.interleave(b.o.repeats, pair{
		ours: func() (time.Duration, error) { return first("read", ours) },
		base: func() (time.Duration, error) {
			if _, err := first("drop", off); err != nil {
				return 0, err
			}
			return first("read", off)
		},
	})
	if err != nil {
		return err
	}
	r.perOp(t, n)
	r.atLeast(1.2)
	cached, err := first("read", off)
	if err != nil {
		return err
	}
	if _, err := first("write", plain); err != nil {
		return err
	}
	inShm, err := first("read", plain)
	r.note("passthrough off, out of the kernel's cache: %.1f µs; a file in /dev/shm: %.1f µs",
		cached.Seconds()*1e6/n, inShm.Seconds()*1e6/n)
	r.Limit = fmt.Sprintf("/dev/shm %.1f µs", inShm.Seconds()*1e6/n)
	return err
}
