package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"ckptfs/fusefs/client"
)

const whyUsage = "why GENERATION_DIR | why --tokens FILE IDENTITY_DIR"

const whyAbout = `Tells what has happened to a generation, from a bounded history: when it was published, superseded and by which,
written to disk and evicted, retired and why. GENERATION_DIR is its path in the mount; it may be gone.

With --tokens it tells what a lookup of the tokens would find, and the story of that; of a longer one that is gone too;
or why there is nothing (exit code 10). It only asks: nothing is refreshed, or brought to RAM.`

// whyFlags are the flags of why.
type whyFlags struct{ tokens string }

// AddFlags registers the flags with their defaults.
func (f *whyFlags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.tokens, "tokens", "", "the tokens of a request in `FILE` (32-bit little-endian, or a .json array; - is standard input)")
}

func runWhy(ctx context.Context, args []string, io streams) error {
	var flags whyFlags
	fs := newFlags(io, whyUsage, whyAbout)
	flags.AddFlags(fs)
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	dir, err := filepath.Abs(fs.Arg(0)) // the name of . is in it
	if err != nil {
		return err
	}
	if flags.tokens == "" {
		return tellHistory(io.out, dir)
	}
	tokens, err := readTokensFlag(flags.tokens, io.in)
	if err != nil {
		return err
	}
	lease, err := lookUp(ctx, dir, tokens, client.FindOptions{Explain: true})
	if err != nil {
		return err
	}
	defer lease.Close()
	return tellLookup(io.out, dir, lease.Reply, len(tokens))
}

// tellLookup tells the stories of what a lookup finds, and of what it has lost.
func tellLookup(out io.Writer, dir string, r client.Reply, asked int) error {
	if r.Generation != "" {
		fmt.Fprintf(out, "found: %d of %d tokens, %s\n", r.NumTokens, asked, r.Generation)
		if err := tellRemembered(out, filepath.Join(dir, r.Generation)); err != nil {
			return err
		}
	}
	if l := r.Lost; l != nil {
		name := l.Generation
		if name == "" {
			name = "its name is not remembered"
		}
		fmt.Fprintf(out, "lost: %d of %d tokens, %s; retired at %s: %s\n", l.NumTokens, asked, name, localTime(l.Retired), printable(l.Reason))
		if l.Generation != "" {
			if err := tellRemembered(out, filepath.Join(dir, l.Generation)); err != nil {
				return err
			}
		}
	}
	if r.Generation == "" {
		return withCode(exitMiss, errors.New(r.Reason))
	}
	return nil
}

func localTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// tellRemembered is tellHistory of what a lookup has named: that its history is too old to be remembered does not make
// the answer none.
func tellRemembered(out io.Writer, generation string) error {
	err := tellHistory(out, generation)
	if exitCodeOf(err) == exitMiss {
		_, err = fmt.Fprintln(out, "  nothing more is remembered of it")
	}
	return err
}

// tellHistory prints a line for each event.
func tellHistory(out io.Writer, generation string) error {
	identity, name := filepath.Split(generation)
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(filepath.Clean(identity), "user.ckptfs.history."+name, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return withCode(exitMiss, fmt.Errorf("%s: nothing is remembered of it; is it the path of a generation, below its identity?", generation))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", generation, err)
	}
	var events []struct {
		At   time.Time `json:"at"`
		Text string    `json:"text"`
	}
	if err := json.Unmarshal(buf[:n], &events); err != nil {
		return fmt.Errorf("the history of %s: %w", generation, err)
	}
	for _, e := range events {
		fmt.Fprintf(out, "  %s  %s\n", localTime(e.At), printable(e.Text)) // a request's name is in it
	}
	return nil
}
