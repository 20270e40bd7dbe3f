package main

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// pair is a piece of work done on both sides. Each function does it once and
// gives the time that it took its clients. limit, if there is one, is the same
// work where nothing of ours is in the way: what could be reached here.
type pair struct {
	ours, base, limit func() (time.Duration, error)
}

// times are those of the repetitions, in order.
type times struct{ ours, base, limit []time.Duration }

// interleave does the sides in turn, so that a slow moment of the machine
// meets both. The first round only warms up: memory that a virtual machine
// touches for the first time is slow whoever touches it. The side that begins
// changes from round to round.
func (b *bench) interleave(repeats int, p pair) (t times, err error) {
	for round := -1; round < repeats; round++ {
		sides := []struct {
			run func() (time.Duration, error)
			to  *[]time.Duration
		}{{p.ours, &t.ours}, {p.base, &t.base}, {p.limit, &t.limit}}
		if round%2 == 0 {
			slices.Reverse(sides)
		}
		for _, s := range sides {
			if s.run == nil {
				continue
			}
			d, err := s.run()
			if err != nil {
				return t, err
			}
			if round >= 0 {
				*s.to = append(*s.to, d)
			}
		}
	}
	return t, nil
}

// warmed is f with memory for so many bytes warmed before.
func warmed(bytes int64, f func() (time.Duration, error)) func() (time.Duration, error) {
	if f == nil {
		return nil
	}
	return func() (time.Duration, error) {
		if err := warmMemory(bytes); err != nil {
			return 0, err
		}
		return f()
	}
}

// warmMemory touches memory and gives it back. Between two rounds a virtual
// machine may give what is free to its host, and whoever touches it next waits
// for that.
func warmMemory(bytes int64) error {
	b := anonymous(bytes)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return unix.Munmap(b)
}

// stat sums up repetitions.
type stat struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func statOf(xs []float64) stat {
	if len(xs) == 0 {
		return stat{}
	}
	xs = slices.Sorted(slices.Values(xs))
	m := xs[len(xs)/2]
	if len(xs)%2 == 0 {
		m = (m + xs[len(xs)/2-1]) / 2
	}
	return stat{Median: m, Min: xs[0], Max: xs[len(xs)-1]}
}

// each gives a figure for every time.
func each(ds []time.Duration, f func(time.Duration) float64) []float64 {
	xs := make([]float64, len(ds))
	for i, d := range ds {
		xs[i] = f(d)
	}
	return xs
}

// speeds fills a row with GB/s; the ratio says how many times as fast ours is.
func (r *result) speeds(t times, bytes int64) {
	r.Unit = "GB/s"
	gbps := func(d time.Duration) float64 { return float64(bytes) / 1e9 / d.Seconds() }
	r.Ours, r.Baseline = statOf(each(t.ours, gbps)), statOf(each(t.base, gbps))
	r.ratios(t, func(ours, base float64) float64 { return base / ours })
}

// perOp fills a row with the time of one of n operations; the ratio says how
// many times as fast ours is.
func (r *result) perOp(t times, n int) {
	r.Unit = "µs"
	us := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(n) }
	r.Ours, r.Baseline = statOf(each(t.ours, us)), statOf(each(t.base, us))
	r.ratios(t, func(ours, base float64) float64 { return base / ours })
}

// delays fills a row with times; the ratio says how many times the baseline's
// time ours takes.
func (r *result) delays(t times) {
	r.Unit = "ms"
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	r.Ours, r.Baseline = statOf(each(t.ours, ms)), statOf(each(t.base, ms))
	r.ratios(t, func(ours, base float64) float64 { return ours / base })
}

// ratios compares each run of ours with the run of the baseline beside it.
func (r *result) ratios(t times, f func(ours, base float64) float64) {
	var xs []float64
	for i := range min(len(t.ours), len(t.base)) {
		xs = append(xs, f(t.ours[i].Seconds(), t.base[i].Seconds()))
	}
	r.Ratio = statOf(xs)
}
