package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"ckptfs/fusefs/client"
)

const getUsage = "get [flags] MOUNT/MODEL/IDENTITY[/GENERATION] DIR"

const getAbout = `Copies a generation into DIR, with file calls on the mount only: manifest.json, identity.json and the pages.

The first argument is a generation, or with --tokens an identity directory: then the longest published prefix
of these tokens is copied. While it is copied, nothing of it is evicted.

The number of pages and every page's size are checked against the manifest. A file in DIR has its name only
when it is whole, and manifest.json comes last: without it the copy is not whole. The generation's name is printed on standard output.`

// getFlags are the flags of get.
type getFlags struct {
	tokens                string
	maxTokens, rank, jobs int
	quiet                 bool
}

// AddFlags registers the flags with their defaults.
func (f *getFlags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.tokens, "tokens", "", "look up the longest prefix of the tokens in `FILE` (32-bit little-endian, or a .json array; - is standard input)")
	fs.IntVar(&f.maxTokens, "max-tokens", 0, "with --tokens: only a generation of at most `N` tokens; 0 is any")
	fs.IntVar(&f.rank, "rank", allRanks, "copy the pages of rank `N` only; -1 is all ranks")
	fs.IntVar(&f.jobs, "jobs", 4, "how many pages to copy at once")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar and no summary")
}

func runGet(ctx context.Context, args []string, io streams) error {
	var flags getFlags
	fs := newFlags(io, getUsage, getAbout)
	flags.AddFlags(fs)
	if err := parseFlags(fs, args, 2, 2); err != nil {
		return err
	}
	generation, lease, err := getLease(ctx, fs.Arg(0), flags, io)
	if err != nil {
		return err
	}
	defer lease.Close()
	ctx, stop := untilSignal(ctx) // from here on something is to be cleared up
	defer stop()
	return interrupted(get(ctx, generation, fs.Arg(1), flags, io))
}

// getLease returns the path of the generation to copy, and the handle that keeps it from being evicted.
func getLease(ctx context.Context, path string, flags getFlags, streams streams) (string, io.Closer, error) {
	if flags.tokens == "" {
		dir, err := os.Open(path)
		if err != nil {
			return "", nil, err
		}
		// Its name and the identity's directory are wanted, and . and symlinks have others.
		if path, err = filepath.Abs(path); err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			dir.Close()
			return "", nil, err
		}
		return path, dir, nil
	}
	tokens, err := readTokensFlag(flags.tokens, streams.in)
	if err != nil {
		return "", nil, err
	}
	lease, err := lookUp(ctx, path, tokens, client.FindOptions{MaxTokens: flags.maxTokens})
	if err != nil {
		return "", nil, err
	}
	if !lease.Hit() {
		lease.Close()
		return "", nil, withCode(exitMiss, fmt.Errorf("no generation in %s: %s", path, lease.Reply.Reason))
	}
	return lease.Dir(), lease, nil
}

// get copies a generation that is held by a lease.
func get(ctx context.Context, generation, dir string, flags getFlags, io streams) error {
	document, err := os.ReadFile(filepath.Join(generation, "manifest.json"))
	if err != nil {
		return fmt.Errorf("%s is no generation: %w", generation, err)
	}
	manifest, err := client.ParseManifest(document)
	if err != nil {
		return fmt.Errorf("%s: %w", generation, err)
	}
	if manifest.Generation == "" {
		return fmt.Errorf("%s is no generation: it is not published", generation)
	}
	if err := checkRank(flags.rank, manifest.WorldSize); err != nil {
		return err
	}
	if err := removeOther(filepath.Join(dir, "manifest.json"), document); err != nil {
		return err
	}
	pages := pagesOf(manifest, flags.rank, manifest.WorldSize)
	t := transfer{jobs: flags.jobs, label: "get", progress: io.err}
	if flags.quiet {
		t.progress = nil
	}
	done, err := t.run(ctx, pages, func(_ context.Context, page client.Page) (bool, error) {
		return true, copyOut(filepath.Join(generation, page.Path), filepath.Join(dir, page.Path), page.Bytes)
	})
	if err != nil {
		return err
	}
	if err := getDocuments(generation, dir, document); err != nil {
		return err
	}
	if !flags.quiet {
		fmt.Fprintf(io.err, "copied: %d pages (%s), in %s, %s\n",
			done.copiedPages, sizeValue(done.copiedBytes).people(), done.took.Round(time.Millisecond), done.rate())
	}
	_, err = fmt.Fprintln(io.out, filepath.Base(generation))
	return err
}

// removeOther removes another manifest than this one: it must not stand over pages that are not its own if the copy is
// not carried through.
func removeOther(path string, manifest []byte) error {
	old, err := os.ReadFile(path)
	if err != nil || bytes.Equal(old, manifest) {
		return nil // what can't be read can't be put either
	}
	return os.Remove(path)
}

// getDocuments writes the manifest, last of all, and the identity document.
func getDocuments(generation, dir string, manifest []byte) error {
	identity, err := os.ReadFile(filepath.Join(filepath.Dir(generation), "identity.json"))
	if err == nil {
		err = replaceFile(filepath.Join(dir, "identity.json"), func(f *os.File) error { _, err := f.Write(identity); return err })
	}
	if err == nil {
		err = replaceFile(filepath.Join(dir, "manifest.json"), func(f *os.File) error { _, err := f.Write(manifest); return err })
	}
	return err
}

// copyOut copies a page and checks its size.
func copyOut(from, to string, sizeBytes int64) error {
	page, err := client.OpenPage(from)
	if err != nil {
		return err
	}
	defer page.Close()
	return replaceFile(to, func(f *os.File) error {
		n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{page}, make([]byte, min(sizeBytes+1, 1<<20)))
		if err == nil && n != sizeBytes {
			err = fmt.Errorf("%s has %d bytes, and the manifest says %d", from, n, sizeBytes)
		}
		return err
	})
}

// replaceFile writes a file under a scratch name and renames it, so that its name never stands for half of it.
func replaceFile(path string, write func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".get-*")
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o644), write(f))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
