package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// part is a half of the demo, on a mount of its own.
type part interface {
	columns() []column
	steps() []step
	endRanks()
}

// run is the whole demo.
func run(ctx context.Context, o options) error {
	m, err := newMounted(o, "--l1-size", o.l1Size)
	if err != nil {
		return err
	}
	if err := runPart(ctx, m, &sharing{engine: engine{mounted: m, pageBytes: o.pageBytes}}); err != nil {
		return err
	}
	fmt.Println()
	if m, err = newMounted(o, tiersFlags(o.pageBytes)...); err != nil {
		return err
	}
	return runPart(ctx, m, &tiers{engine: engine{mounted: m, pageBytes: o.pageBytes}})
}

// runPart mounts, runs the steps and unmounts. Whatever happens, it leaves no
// mount, no process and no file behind.
func runPart(ctx context.Context, m *mounted, p part) (err error) {
	ctx, killRanks := context.WithCancel(ctx)
	// In the end ranks are killed, then the mount that they may wait for goes,
	// and then they can be waited for.
	defer p.endRanks()
	defer func() { err = errors.Join(err, m.cleanUp()) }()
	defer killRanks()
	if err := m.start(ctx); err != nil {
		return err
	}
	table := newTable(os.Stdout, p.columns())
	for _, s := range p.steps() {
		r, err := s.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		table.add(s.name, r)
	}
	if err := m.stop(ctx); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	return nil
}
