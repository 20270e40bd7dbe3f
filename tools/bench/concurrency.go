package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// window is how long opens are measured at a time, at least.
const window = time.Second

// mostTimes is how many times as long an open may take beside a load as alone:
// the 99th percentile.
const mostTimes = 3.0

// concurrencyReport is what `bench concurrency` prints.
type concurrencyReport struct {
	Machine machine       `json:"machine"`
	Loads   []*besideLoad `json:"loads"`
	Scaling []*scalePoint `json:"scaling"`
}

// besideLoad is how long opens of a page in RAM took beside a load. The CPUs are
// shared whatever the load is, and whatever answers: so in turn with the opens the
// same client asked a process that does nothing but answer, through pipes.
type besideLoad struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	Alone  latency `json:"alone"`
	Beside latency `json:"beside"`
	Ratio  float64 `json:"ratio"` // of the 99th percentiles
	Met    bool    `json:"met"`

	PipeAlone  latency `json:"pipe_alone"`
	PipeBeside latency `json:"pipe_beside"`
	PipeRatio  float64 `json:"pipe_ratio"`
}

// latency is that of many calls, µs.
type latency struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func latencyOf(ns []int64) latency {
	if len(ns) == 0 {
		return latency{}
	}
	ns = slices.Sorted(slices.Values(ns))
	at := func(percent int) float64 { return float64(ns[(len(ns)-1)*percent/100]) / 1e3 }
	return latency{N: len(ns), P50: at(50), P99: at(99)}
}

// concurrency measures opens of a page in RAM beside each load, and how opens and
// stores scale with the clients.
func (b *bench) concurrency() error {
	rep := concurrencyReport{Machine: thisMachine(b.base)}
	opener, err := startWorker()
	if err != nil {
		return err
	}
	defer opener.end()
	for _, k := range loadKinds {
		if len(b.o.only) > 0 && !slices.Contains(b.o.only, k.name) {
			continue
		}
		b.note("%s …", k.name)
		r := &besideLoad{Name: k.name, What: k.what}
		switch err := b.besideLoad(k, opener, r); {
		case errors.As(err, new(errSkip)):
			b.note("%s is left out: %v", k.name, err)
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", k.name, err)
		}
		rep.Loads = append(rep.Loads, r)
	}
	if len(b.o.only) == 0 || slices.Contains(b.o.only, scalingName) {
		if rep.Scaling, err = b.scaling(); err != nil {
			return fmt.Errorf("%s: %w", scalingName, err)
		}
	}
	return rep.print(b.o.json)
}

// besideLoad makes a load and measures opens beside it.
func (b *bench) besideLoad(k loadKind, opener *worker, r *besideLoad) error {
	l, err := k.make(b)
	if err != nil {
		return err
	}
	err = b.measureBeside(opener, l, r)
	if l.end != nil {
		err = errors.Join(err, l.end())
	}
	return err
}

// measureBeside measures alone and beside the load in turn, so that a slow moment
// of the machine meets both.
func (b *bench) measureBeside(opener *worker, l *load, r *besideLoad) error {
	var alone, beside outcome
	for range b.o.repeats {
		for _, side := range []struct {
			to      *outcome
			prepare func() error
			run     func() error
		}{
			{&alone, nil, func() error { time.Sleep(window); return nil }},
			{&beside, l.prepare, func() error { return l.repeat(window) }},
		} {
			if side.prepare != nil {
				if err := side.prepare(); err != nil {
					return err
				}
			}
			o, err := opener.until(job{Op: "open", Paths: l.pages}, side.run)
			if err != nil {
				return err
			}
			side.to.Each, side.to.Echo = append(side.to.Each, o.Each...), append(side.to.Echo, o.Echo...)
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
	}
	r.Alone, r.Beside = latencyOf(alone.Each), latencyOf(beside.Each)
	r.PipeAlone, r.PipeBeside = latencyOf(alone.Echo), latencyOf(beside.Echo)
	r.Ratio, r.PipeRatio = r.Beside.P99/r.Alone.P99, r.PipeBeside.P99/r.PipeAlone.P99
	r.Met = r.Ratio <= mostTimes
	return nil
}

// repeat runs the load once at least, and again until the time is over, unless it
// has to be prepared each time.
func (l *load) repeat(d time.Duration) error {
	for began := time.Now(); ; {
		if err := l.run(); err != nil {
			return err
		}
		if l.prepare != nil || time.Since(began) >= d {
			return nil
		}
	}
}

func (rep *concurrencyReport) print(asJSON bool) error {
	if asJSON {
		return printJSON(rep)
	}
	fmt.Printf("%s\n\n", rep.Machine)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if len(rep.Loads) > 0 {
		fmt.Fprintln(w, "load\topens\tp50 alone, µs\tp99 alone\tp50 beside the load\tp99 beside the load\tratio\ttarget\tmet\tpipes: p99 alone\tbeside\tratio")
		for _, r := range rep.Loads {
			fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t≤ %.1f ×\t%s\t%.0f\t%.0f\t%.1f\n", r.Name, r.Beside.N, r.Alone.P50, r.Alone.P99, r.Beside.P50, r.Beside.P99, r.Ratio, mostTimes, yesNo(r.Met), r.PipeAlone.P99, r.PipeBeside.P99, r.PipeRatio)
		}
		fmt.Fprintln(w)
	}
	if len(rep.Scaling) > 0 {
		fmt.Fprintln(w, "work\tprocesses\tthreads of each\tpages/s\tagainst one\t/dev/shm, pages/s\tagainst one")
		for _, p := range rep.Scaling {
			fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%.2f\t%.0f\t%.2f\n", p.Work, p.Processes, p.Threads, p.Ours, p.OursGain, p.Plain, p.PlainGain)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println()
	for _, r := range rep.Loads {
		fmt.Printf("%s: %s\n", r.Name, r.What)
	}
	return nil
}
