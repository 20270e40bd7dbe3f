package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// result is one row of the table.
type result struct {
	Name     string   `json:"name"`
	What     string   `json:"what"`
	Against  string   `json:"against"`
	Unit     string   `json:"unit,omitempty"`
	Ours     stat     `json:"ours"`
	Baseline stat     `json:"baseline"`
	Ratio    stat     `json:"ratio"`
	Target   string   `json:"target"`
	Met      bool     `json:"met"`
	Limit    string   `json:"limit,omitempty"`   // what this machine can do
	Skipped  string   `json:"skipped,omitempty"` // why it was not measured
	Notes    []string `json:"notes,omitempty"`
}

func (r *result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// atLeast and atMost set the target of the median ratio.
func (r *result) atLeast(x float64) {
	r.Target, r.Met = fmt.Sprintf("≥ %.1f ×", x), r.Ratio.Median >= x
}

func (r *result) atMost(x float64) {
	r.Target, r.Met = fmt.Sprintf("≤ %.1f ×", x), r.Ratio.Median <= x
}

// andAtMost adds a bound on the median itself, in the row's unit.
func (r *result) andAtMost(x float64) {
	r.Target += fmt.Sprintf(", ≤ %g %s", x, r.Unit)
	r.Met = r.Met && r.Ours.Median <= x
}

// row measures one line of the table.
type row struct {
	name, what, against string
	run                 func(*bench, *result) error
}

// errSkip says why a row cannot be measured here.
type errSkip struct{ reason string }

func (e errSkip) Error() string { return e.reason }

// report is the whole outcome.
type report struct {
	Machine machine   `json:"machine"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Repeats int       `json:"repeats"`
	Quick   bool      `json:"quick"`
	Rows    []*result `json:"rows"`
}

func (b *bench) table() error {
	rep := report{Machine: thisMachine(b.base), Began: time.Now(), Repeats: b.o.repeats, Quick: b.o.quick}
	for _, n := range b.o.only {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.name == n }) {
			return fmt.Errorf("no row %q; there are %s", n, rowNames())
		}
	}
	var failed error
	for _, r := range rows {
		if len(b.o.only) > 0 && !slices.Contains(b.o.only, r.name) {
			continue
		}
		b.note("%s …", r.name)
		res := &result{Name: r.name, What: r.what, Against: r.against}
		err := r.run(b, res)
		var skip errSkip
		switch {
		case errors.As(err, &skip):
			res.Skipped = skip.reason
		case b.ctx.Err() != nil:
			return b.ctx.Err()
		case err != nil:
			res.Skipped = "failed, see below"
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.name, err))
		}
		rep.Rows = append(rep.Rows, res)
	}
	rep.Seconds = time.Since(rep.Began).Seconds()
	return errors.Join(rep.print(b.o.json), failed)
}

func rowNames() string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return strings.Join(names, ", ")
}

// printJSON prints a report as one document.
func printJSON(rep any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(rep)
}

func (rep *report) print(asJSON bool) error {
	if asJSON {
		return printJSON(rep)
	}
	fmt.Printf("%s\n%d repetitions, %.0f s\n\n", rep.Machine, rep.Repeats, rep.Seconds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tours\tbaseline\tratio (min … max)\ttarget\tmet\tlimit here")
	for _, r := range rep.Rows {
		if r.Skipped != "" {
			fmt.Fprintf(w, "%s\t–\t–\tnot measured: %s\t\t\t\n", r.Name, r.Skipped)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.figure(r.Ours.Median), r.figure(r.Baseline.Median), r.ratio(), r.Target, yesNo(r.Met), r.Limit)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println()
	for _, r := range rep.Rows {
		fmt.Printf("%s: %s, against %s\n", r.Name, r.What, r.Against)
		for _, n := range r.Notes {
			fmt.Printf("    %s\n", n)
		}
	}
	return nil
}

func (r *result) figure(x float64) string {
	if x == 0 && r.Unit == "" {
		return "–"
	}
	return fmt.Sprintf("%.3g %s", x, r.Unit)
}

func (r *result) ratio() string {
	if r.Ratio.Median == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f … %.2f)", r.Ratio.Median, r.Ratio.Min, r.Ratio.Max)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}
