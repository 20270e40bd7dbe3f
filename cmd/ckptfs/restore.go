package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
)

const restoreUsage = "restore [flags] BACKUP MOUNT"

const restoreAbout = `Publishes the generations of a backup, with file calls on the mount only.

BACKUP is a copy of a mount as 'rsync -aHAX MOUNT/ BACKUP/' makes it: BACKUP/<model>/<identity>/<generation>.
Models and identities that are missing are made, with the owners and modes that they had.

Everything is checked before it is stored: the identity document against the name of its directory, each manifest
against its generation's digest, every page's presence and size. (The bytes of pages have no digest in a backup;
a backup that rsync made of a mount had every one checked as it was read.) What does not hold is refused and
listed, and the rest is restored.

Pages that several generations share are copied once, generations that are there already are skipped, and a restore
that was interrupted goes on where it was when the same command is given again. A restored generation supersedes
nothing and is found by lookups like any other.`

// restoreFlags are the flags of restore.
type restoreFlags struct {
	model, identity string
	jobs            int
	wait            time.Duration
	quiet           bool
}

// AddFlags registers the flags with their defaults.
func (f *restoreFlags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.model, "model", "", "restore only this `MODEL` (org/name or its directory's name)")
	fs.StringVar(&f.identity, "identity", "", "restore only this `IDENTITY` (the 40 hex digits, or the first of them)")
	fs.IntVar(&f.jobs, "jobs", 4, "how many generations, and how many pages, to restore at once")
	fs.DurationVar(&f.wait, "wait", 5*time.Minute, "how long a generation may wait for room before it is refused")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar and no summary; refusals are listed all the same")
}

func runRestore(ctx context.Context, args []string, io streams) error {
	var flags restoreFlags
	fs := newFlags(io, restoreUsage, restoreAbout)
	flags.AddFlags(fs)
	if err := parseFlags(fs, args, 2, 2); err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	mount := fs.Arg(1)
	if _, err := os.Lstat(mount + "/.ckptfs"); err != nil {
		return withCode(exitNotMounted, fmt.Errorf("%s is not a ckptfs mount: %w", mount, err))
	}
	backup, err := openBackup(fs.Arg(0), flags)
	if err != nil {
		return err
	}
	r := &restore{mount: mount, flags: flags, progress: io.err, claims: newClaims(), slots: make(chan struct{}, max(flags.jobs, 1))}
	err = r.run(ctx, backup)
	r.report(io.err)
	switch n := len(r.refused.list); {
	case ctx.Err() != nil:
		return errors.New("interrupted; the same command goes on from here")
	case err != nil:
		return err
	case n == 1:
		return withCode(exitRefused, errors.New("one part of the backup was refused"))
	case n > 0:
		return withCode(exitRefused, fmt.Errorf("%d parts of the backup were refused", n))
	}
	return nil
}

// restore is one run of the command.
type restore struct {
	mount    string
	flags    restoreFlags
	progress io.Writer
	claims   *claims
	slots    chan struct{} // one for each page being copied
	bar      byteBar
	staged   atomic.Int32 // generations that have room now

	refused refusals
	done    restoreTally
	took    time.Duration
}

// run checks the whole backup, then restores what holds: the oldest generation first, so that recency is kept.
func (r *restore) run(ctx context.Context, b *backup) error {
	begun := time.Now()
	defer func() { r.took = time.Since(begun) }()
	r.refused.list = b.refused
	todo, err := r.check(ctx, b)
	if err != nil {
		return err
	}
	slices.SortFunc(todo, func(a, b *backupGeneration) int {
		return cmp.Or(a.mtime.Compare(b.mtime), cmp.Compare(a.dir, b.dir))
	})
	var total int64
	for _, g := range todo {
		total += g.bytes
	}
	r.bar = newByteBar(r.watcher(), "restore", total)
	defer r.bar.end()
	made, err := r.prepare(ctx, b, todo)
	if err != nil {
		return err
	}
	err = r.each(ctx, todo, func(ctx context.Context, g *backupGeneration) error { return r.generation(ctx, g) })
	made.setTimes()
	return err
}

// watcher is where a progress bar may be drawn.
func (r *restore) watcher() io.Writer {
	if r.flags.quiet {
		return nil
	}
	return r.progress
}

// each calls do for several generations at once. What it refuses is noted; only an interruption ends it all.
func (r *restore) each(ctx context.Context, gs []*backupGeneration, do func(context.Context, *backupGeneration) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(r.flags.jobs, 1))
	for _, g := range gs {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if g.identity.refused() {
				return nil
			}
			err := do(ctx, g)
			if err != nil && ctx.Err() == nil {
				r.refused.add(g.path(), err)
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// report lists what was refused and says what was done.
func (r *restore) report(out io.Writer) {
	for _, line := range r.refused.lines() {
		fmt.Fprintf(out, "refused %s\n", line)
	}
	if r.flags.quiet {
		return
	}
	d := &r.done
	t := tally{copiedBytes: d.copiedBytes.Load(), took: r.took}
	fmt.Fprintf(out, "restored %d generations: %d pages written (%s), %d shared (%s); %d generations were there already; in %s, %s\n",
		d.restored.Load(), d.copiedPages.Load(), sizeValue(d.copiedBytes.Load()).people(), d.sharedPages.Load(),
		sizeValue(d.sharedBytes.Load()).people(), d.present.Load(), r.took.Round(time.Millisecond), t.rate())
}
