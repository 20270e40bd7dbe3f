// Command workload plays the workloads of evict/RETENTION.md through a real
// mount: conversations that look up, restore and publish generations by file
// calls, over a RAM tier that is too small for them. It prints one row for each
// cell: what was written to disk meanwhile and at the stop, and what could still
// be restored. It lets eviction come to rest after each step, so that a cell
// gives the same figures at each run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"ckptfs/evict/retention/sim"
)

const about = `workload plays conversations through a mount of its own: each turn looks its prompt up, restores what is found, and
publishes a prompt and a response, over a RAM tier that is too small for all. It prints what went to disk meanwhile and at
the stop, and how many turns found the very generation that they continue. Without flags it plays the table of
evict/RETENTION.md, about a minute a row; a row that misses its target makes the exit code 1. A short one:

  workload --workload agent --l1 32 --turns 7 --policy recency,adaptive`

// options are the flags.
type options struct {
	binary        string
	dir           string
	workloads     []string
	l1MiB         []int
	policies      []string
	writePolicy   string
	order         string
	seed          uint64
	conversations int
	turns         int
	json          bool
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.binary, "ckptfs", "bin/ckptfs", "the ckptfs binary to mount")
	fs.StringVar(&o.dir, "dir", "", "where to make the temporary directory (default: the system's)")
	fs.StringSliceVar(&o.workloads, "workload", nil, "only these: agent, side, fork, chat+side; mixed is played only if it is named")
	fs.IntSliceVar(&o.l1MiB, "l1", nil, "only these sizes of the RAM tier, MiB; without --workload, sizes of the table")
	fs.StringSliceVar(&o.policies, "policy", []string{"adaptive"}, "what --retention is: recency, adaptive")
	fs.StringVar(&o.writePolicy, "write-policy", "on-evict", "what --write-policy is")
	fs.StringVar(&o.order, "order", string(sim.RoundRobin), "order of visits: loop, random, bursty, zipf, changing loop, shuffled loop, phases")
	fs.Uint64Var(&o.seed, "seed", 1, "of the page contents and of the order of visits")
	fs.IntVar(&o.conversations, "conversations", sim.Conversations, "how many there are")
	fs.IntVar(&o.turns, "turns", sim.Turns, "of each conversation, on average")
	fs.BoolVar(&o.json, "json", false, "print the rows as JSON objects, one a line")
}

func main() {
	// The kernel ends the mount when the thread that started it ends.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "workload: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	fs := pflag.NewFlagSet("workload", pflag.ContinueOnError)
	fs.Usage = func() { fmt.Fprintf(out, "%s\n\nFlags:\n%s", about, fs.FlagUsages()) }
	o.addFlags(fs)
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	var err error
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	cells, err := o.cells()
	if err != nil {
		return err
	}
	if !o.json {
		fmt.Fprintln(out, tableHead)
	}
	missed := 0
	for _, c := range cells {
		r, err := o.play(ctx, c)
		if err != nil {
			return fmt.Errorf("%s at %d MiB, %s: %w", c.shape, c.l1MiB, c.policy, err)
		}
		if t, ok := o.target(c); ok && !t.met(r) {
			missed++
		}
		if err := o.print(out, c, r); err != nil {
			return err
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d rows missed their target", missed, len(cells))
	}
	return nil
}

// cell is one run.
type cell struct {
	shape  sim.Shape
	l1MiB  int
	policy string
}

// cells are the rows of the table that the flags choose.
func (o *options) cells() ([]cell, error) {
	for _, w := range o.workloads {
		if !slices.Contains([]sim.Shape{sim.Agent, sim.Side, sim.Fork, sim.ChatSide, sim.Mixed}, sim.Shape(w)) {
			return nil, fmt.Errorf("--workload %q: use agent, side, fork, chat+side or mixed", w)
		}
	}
	if order := sim.Order(o.order); order != sim.RoundRobin && !slices.Contains(sim.Orders, order) {
		return nil, fmt.Errorf("--order %q: use loop, random, bursty, zipf, changing loop, shuffled loop or phases", o.order)
	}
	var cells []cell
	for _, p := range o.policies {
		if len(o.workloads) > 0 && len(o.l1MiB) > 0 {
			for _, w := range o.workloads {
				for _, l1 := range o.l1MiB {
					cells = append(cells, cell{sim.Shape(w), l1, p})
				}
			}
			continue
		}
		for _, r := range sim.Table {
			if len(o.workloads) > 0 && !slices.Contains(o.workloads, string(r.Shape)) ||
				len(o.l1MiB) > 0 && !slices.Contains(o.l1MiB, r.RAMMiB) {
				continue
			}
			cells = append(cells, cell{r.Shape, r.RAMMiB, p})
		}
	}
	if len(cells) == 0 {
		return nil, errors.New("no row of the table has such a size; name a --workload too")
	}
	return cells, nil
}

// row is what a cell gave.
type row struct {
	Workload       string  `json:"workload"`
	L1MiB          int     `json:"l1_mib"`
	Policy         string  `json:"policy"`
	WrittenMiB     float64 `json:"written_mib"` // while serving
	FlushedMiB     float64 `json:"flushed_mib"` // by the flush at the end
	FailedRestores int     `json:"failed_restores"`
	Restored       int     `json:"restored"`
	Continuations  int     `json:"continuations"`
	Retired        int     `json:"retired"` // generations
}

const tableHead = "| workload | RAM MiB | policy | MiB while serving (+ at the stop) | failed | restored | retired | target |\n|---|---|---|---|---|---|---|---|"

func (o *options) print(out io.Writer, c cell, r row) error {
	if o.json {
		return json.NewEncoder(out).Encode(r)
	}
	target := ""
	if t, ok := o.target(c); ok {
		if target = t.String(); !t.met(r) {
			target += " MISSED"
		}
	}
	_, err := fmt.Fprintf(out, "| %s | %d | %s | %.1f (+%.0f) | %d | %d of %d | %d | %s |\n",
		r.Workload, r.L1MiB, r.Policy, r.WrittenMiB, r.FlushedMiB, r.FailedRestores, r.Restored, r.Continuations, r.Retired, target)
	return err
}

// play mounts, plays a cell, and stops the mount.
func (o *options) play(ctx context.Context, c cell) (r row, err error) {
	m, err := o.mount(c)
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, m.cleanUp()) }()
	p, err := newPlayer(ctx, m, o.seed)
	if err != nil {
		return row{}, err
	}
	script := sim.Script{Shape: c.shape, Visits: sim.Visits(sim.Order(o.order), o.conversations, o.turns, o.seed)}
	sim.Play(script, p, func() bool { return p.err != nil || ctx.Err() != nil })
	if err := errors.Join(p.err, ctx.Err()); err != nil {
		return row{}, fmt.Errorf("%w\n%s", err, lastLines(m.log.String()))
	}
	s, err := m.status()
	if err != nil {
		return row{}, err
	}
	if err := m.stop(); err != nil {
		return row{}, err
	}
	flushed, err := flushedBytes(m.log.String())
	const mib = 1 << 20
	return row{
		Workload: string(c.shape), L1MiB: c.l1MiB, Policy: c.policy,
		WrittenMiB: float64(s.Counters["disk_written_bytes"]) / mib, FlushedMiB: float64(flushed) / mib,
		FailedRestores: p.failed, Restored: p.restored, Continuations: p.continuations,
		Retired: int(s.Counters["generations_retired"]),
	}, err
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
