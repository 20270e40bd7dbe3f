package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"ckptfs/fusefs"
)

const clearUsage = "clear [--force] [--json] MOUNT [PATH]"

const clearAbout = `Removes every generation of MOUNT, or of what is below PATH (MODEL, MODEL/IDENTITY or MODEL/IDENTITY/GENERATION; a
path in the mount will do too), and says what it kept and why.

Kept is what is leased: a generation that a .find has returned and that is open still, one of which a directory or a
page is open; and what is pinned. Stagings are left alone; pages that they have are not lost for them. Who is reading
notices nothing. Directories of models and identities stay, so that engines can go on; rm -r removes those too.

With --force what is pinned goes too, and the stagings, so that nothing is left. It is all or nothing: if anything
below is leased, or is being written by somebody, nothing is removed, the holders are listed, and the exit code is 14.

It is for root only. Exit code 0: done, and what is leased or pinned was kept; 10: there is no such path; 14: in use.`

func runClear(ctx context.Context, args []string, io streams) error {
	fs := newFlags(io, clearUsage, clearAbout)
	force := fs.Bool("force", false, "remove everything, also what is pinned and being written; nothing if anything is leased")
	asJSON := fs.Bool("json", false, "print the report as JSON")
	if err := parseFlags(fs, args, 1, 2); err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	path := ""
	if fs.NArg() == 2 {
		var err error
		if path, err = pathBelow(fs.Arg(0), fs.Arg(1)); err != nil {
			return withCode(exitUsage, err)
		}
	}
	report, err := giveOrder(ctx, fs.Arg(0), fusefs.Order{Do: "clear", Path: path, Force: *force}, func(fusefs.Report) {})
	return writeReport(io.out, report.Clear, *asJSON, writeCleared, err)
}

// pathBelow makes a path in the mount one that is relative to it; "" is the mount itself. Symlinks may lead to either.
func pathBelow(mount, path string) (string, error) {
	if path == "" {
		return "", errors.New("PATH is empty; leave it out if everything is meant")
	}
	rel := filepath.Clean(path)
	if filepath.IsAbs(path) {
		at, err := filepath.Abs(mount)
		if err == nil {
			rel, err = filepath.Rel(resolveExisting(at), resolveExisting(rel))
		}
		if err != nil {
			return "", err
		}
	}
	switch {
	case !filepath.IsLocal(rel):
		return "", fmt.Errorf("%s is not in %s", path, mount)
	case rel == ".":
		return "", nil
	}
	return rel, nil
}

func writeCleared(w io.Writer, r fusefs.ClearReport) {
	fmt.Fprintf(w, "removed %d of %s", r.Removed, count(r.Of, "generation"))
	if r.Stagings > 0 {
		fmt.Fprintf(w, " and %s", count(r.Stagings, "staging"))
	}
	fmt.Fprintf(w, "; %s of RAM and %s of disk are free again\n", sizeValue(r.FreedRAMBytes).people(), sizeValue(r.FreedDiskBytes).people())
	for _, k := range r.Kept {
		fmt.Fprintf(w, "kept %s (%s): %s\n", printable(k.Path), sizeValue(k.Bytes).people(), k.Why)
		writeHolders(w, k.Holders)
	}
	if r.KeptLeftOut > 0 {
		fmt.Fprintf(w, "and kept %d more; .ckptfs/leases.json has all leases\n", r.KeptLeftOut)
	}
}
