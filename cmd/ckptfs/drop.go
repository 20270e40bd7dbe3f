package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ckptfs/fusefs"
)

const dropUsage = "drop --ram [--json] MOUNT"

const dropAbout = `Empties the RAM tier of MOUNT without losing anything: pages that have no copy on disk are written there first, so
that they survive a power loss, superseded ones too. Then all pages go from RAM but those that are in use (open, found
by a .find that is open still, or part of a staging); those stay, and are counted. Nothing is retired for it: what the
disk does not take stays in RAM, and the exit code is 1. With --write-policy=never that is what has no copy.

Afterwards lookups bring pages back from disk as they are asked for. Ctrl-C ends it; what is written is written.

It is for root only.`

func runDrop(ctx context.Context, args []string, io streams) error {
	fs := newFlags(io, dropUsage, dropAbout)
	ram := fs.Bool("ram", false, "empty the RAM tier; has to be given, there is nothing else to drop")
	asJSON := fs.Bool("json", false, "print the report as JSON")
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	if !*ram {
		return withCode(exitUsage, errors.New("say what to drop: --ram"))
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	var bar byteBar
	var drawn int64
	report, err := giveOrder(ctx, fs.Arg(0), fusefs.Order{Do: "drop-ram"}, func(r fusefs.Report) {
		switch {
		case r.DropRAM == nil || r.DropRAM.DirtyBytes == 0:
		case bar.bar == nil:
			bar = newByteBar(io.err, "writing to disk", r.DropRAM.DirtyBytes)
			fallthrough
		default:
			bar.add(max(r.DropRAM.WrittenBytes-drawn, 0))
			drawn = max(r.DropRAM.WrittenBytes, drawn)
		}
	})
	bar.end()
	return writeReport(io.out, report.DropRAM, *asJSON, writeDropped, err)
}

func writeDropped(w io.Writer, r fusefs.DropRAMReport) {
	fmt.Fprintf(w, "wrote %s (%s) to disk; dropped %d of %s (%s) from RAM\n", count(r.Written, "page"), sizeValue(r.WrittenBytes).people(),
		r.Dropped, count(r.Of, "page"), sizeValue(r.DroppedBytes).people())
	if r.Leased > 0 {
		fmt.Fprintf(w, "kept %s (%s) in use\n", count(r.Leased, "page"), sizeValue(r.LeasedBytes).people())
		writeHolders(w, r.Holders)
	}
	if r.Staged > 0 {
		fmt.Fprintf(w, "kept %s of pages that are being written\n", sizeValue(r.Staged).people())
	}
	if r.Unwritten > 0 {
		fmt.Fprintf(w, "kept %s (%s) without a copy on disk\n", count(r.Unwritten, "page"), sizeValue(r.UnwrittenBytes).people())
	}
}
