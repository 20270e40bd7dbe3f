package main

import (
	"crypto/sha256"
	"path/filepath"
	"time"

	"ckptfs/index"
)

// memcpySpeed is what n processes copy at the same time, GB/s: no store or
// restore into a buffer can be faster.
func (b *bench) memcpySpeed(n int) (float64, error) {
	const rounds = 40
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{Op: "memcpy", Paths: make([]string, rounds), Bytes: largePage}
	}
	var best time.Duration
	for range 3 {
		d, _, err := b.together(jobs...)
		if err != nil {
			return 0, err
		}
		if best == 0 || d < best {
			best = d
		}
	}
	return float64(n*rounds) * largePage / 1e9 / best.Seconds(), nil
}

// hashTime is how long SHA-256 over the tokens of a request takes: no lookup
// can be faster.
func hashTime(numTokens int) time.Duration {
	data := make([]byte, 4*numTokens)
	best := time.Duration(1 << 62)
	for range 20 {
		began := time.Now()
		sha256.Sum256(data)
		best = min(best, time.Since(began))
	}
	return best
}

// commitTime is how long the least transaction of an index on the bench's disk
// takes: no publication can be faster.
func (b *bench) commitTime() (time.Duration, error) {
	x, err := index.Open(filepath.Join(b.base, "limit.db"), index.Options{})
	if err != nil {
		return 0, err
	}
	defer x.Close()
	m, err := x.CreateModel("m", index.Attr{Mode: 0o755}, 0)
	if err != nil {
		return 0, err
	}
	var all []float64
	for i := range 100 {
		began := time.Now()
		if err := x.SetModelAttr(m, func(index.Attr) index.Attr { return index.Attr{Mode: 0o755, Mtime: int64(i)} }); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began).Seconds())
	}
	return time.Duration(statOf(all).Median * 1e9), nil
}
