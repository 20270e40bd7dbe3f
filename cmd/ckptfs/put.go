package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"ckptfs/fusefs/client"
)

const putUsage = "put [flags] MOUNT/MODEL[/IDENTITY] DIR"

const putAbout = `Stores the generation in DIR and publishes it, with file calls on the mount only.

DIR has the shape of a published generation: manifest.json, the exact prefix in the file tokens (unsigned
32-bit little-endian) and rank-<r>/<group>/<position> files. What 'ckptfs get' wrote can be put again: a
manifest that was published before needs no tokens.

The first argument is an identity directory, or a model directory together with --identity.

Without --rank all ranks' pages are stored by one process. With it, every rank has a process of its own, each
with the same DIR contents but for its pages; all wait until the last one is done. Pages that the filesystem
has already are not copied, and a put that was killed is resumed by the same command.

The generation's name is printed on standard output.`

// allRanks is the value of --rank that means every rank.
const allRanks = -1

// putFlags are the flags of put.
type putFlags struct {
	identity, request, staging string
	rank, jobs                 int
	wait                       time.Duration
	quiet                      bool
}

// AddFlags registers the flags with their defaults.
func (f *putFlags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.identity, "identity", "", "identity document `FILE`; the first argument is then a model directory, made if missing")
	fs.IntVar(&f.rank, "rank", allRanks, "store the pages of rank `N` only; -1 is all ranks")
	fs.StringVar(&f.request, "request", "", "request `ID` to write into the manifest instead of its own")
	fs.StringVar(&f.staging, "staging", "", "`NAME` of the staging directory, the same for all ranks (default: made from the contents)")
	fs.IntVar(&f.jobs, "jobs", 4, "how many pages to copy at once")
	fs.DurationVar(&f.wait, "wait", 5*time.Minute, "how long to wait for the other ranks, and for an answer to the manifest")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar and no summary")
}

func runPut(ctx context.Context, args []string, io streams) error {
	var flags putFlags
	fs := newFlags(io, putUsage, putAbout)
	flags.AddFlags(fs)
	if err := parseFlags(fs, args, 2, 2); err != nil {
		return err
	}
	source, err := openPutSource(fs.Arg(1), flags.request)
	if err != nil {
		return err
	}
	identityDir, err := putIdentity(ctx, fs.Arg(0), flags.identity)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx) // from here on something is to be cleared up
	defer stop()
	return interrupted(put(ctx, identityDir, source, flags, io))
}

// put stages, copies and publishes.
func put(ctx context.Context, identityDir string, source putSource, flags putFlags, io streams) error {
	world := worldSize(identityDir)
	if err := checkRank(flags.rank, world); err != nil {
		return err
	}
	name := flags.staging
	if name == "" {
		name = source.stagingName()
	}
	limited, cancel := context.WithTimeout(ctx, flags.wait)
	defer cancel()
	staging, err := client.Stage(limited, identityDir, client.StageOptions{
		Name: name, Manifest: source.document, Tokens: source.tokens,
	})
	if err != nil {
		return refusedIfInvalid(err)
	}
	defer staging.Close()
	done, err := putPages(ctx, staging, source, flags, io)
	done.share(pagesOf(source.manifest, flags.rank, world))
	if err == nil {
		err = putPublish(ctx, staging, flags, io, done)
	}
	if err != nil && flags.rank == allRanks {
		return errors.Join(refusedIfInvalid(err), staging.Abandon())
	}
	return refusedIfInvalid(err)
}

// putPages copies what the plan misses.
func putPages(ctx context.Context, staging *client.Staging, source putSource, flags putFlags, io streams) (tally, error) {
	plan, err := staging.Plan()
	if err != nil {
		return tally{}, err
	}
	missing := plan.Missing
	if flags.rank != allRanks {
		missing = plan.MissingOf(flags.rank)
	}
	t := transfer{jobs: flags.jobs, label: "put", progress: io.err}
	if flags.quiet {
		t.progress = nil
	}
	return t.run(ctx, missing, func(ctx context.Context, page client.Page) (bool, error) {
		f, err := source.page(page)
		if err != nil {
			return false, err
		}
		defer f.Close()
		return staging.CopyPage(ctx, page.Path, page.Bytes, f)
	})
}

func putPublish(ctx context.Context, staging *client.Staging, flags putFlags, io streams, done tally) error {
	ctx, cancel := context.WithTimeout(ctx, flags.wait)
	defer cancel()
	publication, err := staging.Publish(ctx)
	if err != nil {
		return err
	}
	if !flags.quiet {
		how := "published"
		switch {
		case publication.Replay && done.copiedPages == 0:
			how = "was published already"
		case publication.Replay:
			how = "published by another rank"
		}
		fmt.Fprintf(io.err, "%s: %d pages written (%s), %d shared (%s), in %s, %s\n", how,
			done.copiedPages, sizeValue(done.copiedBytes).people(), done.sharedPages, sizeValue(done.sharedBytes).people(),
			done.took.Round(time.Millisecond), done.rate())
	}
	_, err = fmt.Fprintln(io.out, publication.Generation)
	return err
}

// putIdentity returns the identity directory that the first argument means.
func putIdentity(ctx context.Context, path, documentFile string) (string, error) {
	if documentFile == "" {
		_, err := os.Lstat(filepath.Join(path, ".staging"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", err
		}
		if err != nil {
			return "", withCode(exitUsage, fmt.Errorf("%s is no identity directory of a ckptfs mount; give one, or --identity FILE: %w", path, err))
		}
		return path, nil
	}
	document, err := os.ReadFile(documentFile)
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil { // . is a model too
		return "", err
	}
	dir, err := client.Identify(ctx, filepath.Dir(path), filepath.Base(path), document)
	return dir, refusedIfInvalid(err)
}

// refusedIfInvalid gives EINVAL the exit code for what was refused for its contents.
func refusedIfInvalid(err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return withCode(exitRefused, err)
	}
	return err
}
