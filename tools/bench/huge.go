package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ckptfs/pages"
)

// hugeBytes is the size of the tmpfs that onHuge mounts.
const hugeBytes = 2 << 30

// onHuge has f work in a directory on a tmpfs that is mounted as the RAM tier's
// is, and gives its time: no filesystem
// above that memory can be faster. nil where it cannot be mounted.
func (b *bench) onHuge(f func(dir string) (time.Duration, error)) func() (time.Duration, error) {
	if b.huge == "" {
		at := filepath.Join(b.base, "huge")
		if err := errors.Join(os.Mkdir(at, 0o700), pages.MountRAM(at, hugeBytes, true)); err != nil {
			b.note("  no limit for rows about RAM: %v", err)
			return nil
		}
		b.huge = at
	}
	return func() (time.Duration, error) { return f(b.hugeDir()) }
}

func (b *bench) hugeDir() string { return filepath.Join(b.huge, "pages") }

// hugeLimit says how fast the same was without FUSE, and how that compares with
// the baseline.
func (r *result) hugeLimit(t times, bytes int64) {
	if len(t.limit) == 0 {
		return
	}
	var free result
	free.speeds(times{ours: t.limit, base: t.base}, bytes)
	r.Limit = fmt.Sprintf("huge pages without FUSE %.3g GB/s, %.2f ×", free.Ours.Median, free.Ratio.Median)
}
