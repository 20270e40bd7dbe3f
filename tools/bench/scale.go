package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// scaleReport is what `bench scale` prints: one column for each store.
type scaleReport struct {
	Machine machine       `json:"machine"`
	Stores  []*scaleStore `json:"stores"`
}

// scaleStore is what one size of store gave.
type scaleStore struct {
	Generations int            `json:"generations"`
	Pages       int64          `json:"pages"` // distinct
	Figures     []*scaleFigure `json:"figures"`
}

type scaleFigure struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	X    float64 `json:"value"` // a median where it was measured more than once
}

func (s *scaleStore) add(name, unit string, x float64) {
	s.Figures = append(s.Figures, &scaleFigure{name, unit, x})
}

// scale fills a store of each size, one after the other, and measures what
// should not depend on the size.
func (b *bench) scale() error {
	rep := scaleReport{Machine: thisMachine(b.base)}
	for _, n := range b.o.sizes {
		n = belowLimit(n)
		m, err := b.filled(n)
		if err != nil {
			return err
		}
		s, err := b.scaleStore(m, n)
		if err != nil {
			return fmt.Errorf("%d generations: %w", n, err)
		}
		rep.Stores = append(rep.Stores, s)
		if err := m.cleanUp(); err != nil {
			return err
		}
	}
	return rep.print(b.o.json)
}

// scaleStep measures some figures of a store.
type scaleStep struct {
	name string
	run  func(b *bench, m *mounted, dir string, s *scaleStore) error
}

var scaleSteps = []scaleStep{
	{"lookup", scaleLookups}, {"publish", scalePublish}, {"open", scaleOpen}, {"list", scaleList},
	{"retire", scaleRetire}, {"start", scaleStart},
}

func (b *bench) scaleStore(m *mounted, n int) (*scaleStore, error) {
	dir, err := m.identify(tinyPage)
	if err != nil {
		return nil, err
	}
	st, err := m.status()
	if err != nil {
		return nil, err
	}
	s := &scaleStore{Generations: n, Pages: st.RAM.UsedBytes / 4096}
	for _, step := range scaleSteps {
		if len(b.o.only) > 0 && !slices.Contains(b.o.only, step.name) {
			continue
		}
		b.note("  %d generations: %s", n, step.name)
		if err := step.run(b, m, dir, s); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return s, nil
}

// medianMS is the median of some runs, ms.
func medianMS(runs int, f func() (time.Duration, error)) (float64, error) {
	var ds []time.Duration
	for i := range runs + 1 {
		d, err := f()
		if err != nil {
			return 0, err
		}
		if i > 0 { // the first warms up
			ds = append(ds, d)
		}
	}
	return statOf(each(ds, func(d time.Duration) float64 { return d.Seconds() * 1e3 })).Median, nil
}

func scaleLookups(b *bench, _ *mounted, dir string, s *scaleStore) error {
	for _, n := range []int{2_000, 40_000, requestTokens} {
		for _, l := range lookups(n) {
			ms, err := medianMS(15, func() (time.Duration, error) { return b.findOnce(dir, l) })
			if err != nil {
				return err
			}
			s.add(fmt.Sprintf("lookup, %d tokens, %s", n, l.name), "ms", ms)
		}
	}
	return nil
}

func scalePublish(b *bench, _ *mounted, dir string, s *scaleStore) error {
	ms, err := medianMS(9, func() (time.Duration, error) { return b.publishOnce(dir) })
	s.add("publish 224 new pages (rename)", "ms", ms)
	return err
}

// scaleOpen opens, reads and closes pages of generations all over the store.
func scaleOpen(b *bench, m *mounted, dir string, s *scaleStore) error {
	gens, err := generationsOf(dir, 400)
	if err != nil {
		return err
	}
	var paths []string
	for _, g := range gens {
		found, err := filepath.Glob(filepath.Join(dir, g, "rank-0", attention, "*"))
		if err != nil || len(found) == 0 {
			return errors.Join(err, fmt.Errorf("%s has no pages", g))
		}
		paths = append(paths, found[0])
	}
	ms, err := medianMS(5, func() (time.Duration, error) {
		d, _, err := b.together(job{Op: "read", Paths: paths, Bytes: tinyPage})
		return d / time.Duration(len(paths)), err
	})
	s.add("open, read, close of a page", "µs", ms*1e3)
	return err
}

// generationsOf gives at most n names, evenly from the whole listing.
func generationsOf(dir string, n int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(s string) bool { return s == "identity.json" })
	step := max(1, len(names)/n)
	var some []string
	for i := 0; i < len(names) && len(some) < n; i += step {
		some = append(some, names[i])
	}
	return some, nil
}

// scaleList lists the identity; what others do meanwhile is measured by `bench
// concurrency`.
func scaleList(b *bench, m *mounted, dir string, s *scaleStore) error {
	for _, flags := range []string{"-f", "-l"} {
		ms, err := medianMS(2, func() (time.Duration, error) {
			began := time.Now()
			out, err := exec.CommandContext(b.ctx, "ls", flags, dir).Output()
			if err == nil && len(out) < 50*s.Generations {
				err = fmt.Errorf("ls %s gave %d bytes for %d generations", flags, len(out), s.Generations)
			}
			return time.Since(began), err
		})
		if err != nil {
			return err
		}
		s.add("ls "+flags+" of the identity", "ms", ms)
	}
	return nil
}

// scaleRetire deletes generations: rm -r of the newest of a conversation, whose
// pages the others share in part.
func scaleRetire(b *bench, _ *mounted, dir string, s *scaleStore) error {
	gens, err := generationsOf(dir, 6)
	if err != nil {
		return err
	}
	next := 0
	ms, err := medianMS(len(gens)-1, func() (time.Duration, error) {
		g := filepath.Join(dir, gens[next])
		next++
		began := time.Now()
		err := os.RemoveAll(g)
		return time.Since(began), err
	})
	s.add("rm -r of a 64-page generation", "ms", ms)
	return err
}

func scaleStart(b *bench, m *mounted, _ string, s *scaleStore) error {
	var took []float64
	for range 3 {
		d, err := b.restart(m)
		if err != nil {
			return err
		}
		took = append(took, d.Seconds()*1e3)
	}
	s.add("start, to the answer of a first lookup", "ms", statOf(took).Median)
	resident, err := m.residentBytes()
	if err != nil {
		return err
	}
	size, err := indexBytes(m.state)
	s.add("daemon resident after it", "MiB", float64(resident)/(1<<20))
	s.add("index on disk", "MiB", float64(size)/(1<<20))
	return err
}

func (rep *scaleReport) print(asJSON bool) error {
	if asJSON {
		return printJSON(rep)
	}
	fmt.Printf("%s\n\n", rep.Machine)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, cell func(*scaleStore) string) {
		fmt.Fprintf(w, "%s\t", name)
		for _, s := range rep.Stores {
			fmt.Fprintf(w, "%s\t", cell(s))
		}
		fmt.Fprintln(w)
	}
	line("generations", func(s *scaleStore) string { return fmt.Sprint(s.Generations) })
	line("distinct pages", func(s *scaleStore) string { return fmt.Sprint(s.Pages) })
	for i, f := range rep.Stores[0].Figures {
		line(f.Name+", "+f.Unit, func(s *scaleStore) string { return fmt.Sprintf("%.3g", s.Figures[i].X) })
	}
	return w.Flush()
}
