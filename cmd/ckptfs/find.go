package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"ckptfs/fusefs/client"
)

const findUsage = "find --tokens FILE [flags] IDENTITY_DIR"

const findAbout = `Looks up the published generation with the most tokens that is an exact prefix of the tokens in FILE.

FILE has unsigned 32-bit little-endian tokens, or is a .json file with an array of numbers; - is standard input.
Without a hit the exit code is 10, and the message says why the best lead was none.`

// findFlags are the flags of find.
type findFlags struct {
	tokens    string
	maxTokens int
	json      bool
}

// AddFlags registers the flags with their defaults.
func (f *findFlags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.tokens, "tokens", "", "the request's tokens in `FILE` (required)")
	fs.IntVar(&f.maxTokens, "max-tokens", 0, "only a generation of at most `N` tokens; 0 is any")
	fs.BoolVar(&f.json, "json", false, "print the filesystem's reply as it is, one JSON line")
}

func runFind(ctx context.Context, args []string, io streams) error {
	var flags findFlags
	fs := newFlags(io, findUsage, findAbout)
	flags.AddFlags(fs)
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	if flags.tokens == "" {
		return withCode(exitUsage, errors.New("--tokens FILE is missing: what is to be looked up?"))
	}
	tokens, err := readTokensFlag(flags.tokens, io.in)
	if err != nil {
		return err
	}
	start := time.Now()
	lease, err := lookUp(ctx, fs.Arg(0), tokens, client.FindOptions{MaxTokens: flags.maxTokens})
	if err != nil {
		return err
	}
	defer lease.Close()
	if flags.json {
		return findJSON(io.out, lease)
	}
	if !lease.Hit() {
		return withCode(exitMiss, errors.New(lease.Reply.Reason))
	}
	return findTable(io.out, lease.Reply, len(tokens), time.Since(start))
}

func findJSON(out io.Writer, lease *client.Lease) error {
	if _, err := fmt.Fprintf(out, "%s\n", lease.Raw); err != nil {
		return err
	}
	if !lease.Hit() {
		return withCode(exitMiss, errors.New("")) // the reply says it all
	}
	return nil
}

// findTable prints a hit for people.
func findTable(out io.Writer, reply client.Reply, asked int, took time.Duration) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "generation\t%s\n", reply.Generation)
	fmt.Fprintf(w, "kind\t%s\n", reply.Kind)
	fmt.Fprintf(w, "tokens\t%d of %d asked for (%.1f%%)\n", reply.NumTokens, asked, 100*float64(reply.NumTokens)/float64(max(asked, 1)))
	fmt.Fprintf(w, "draft prefix\t%d\n", reply.DraftPrefixLen)
	fmt.Fprintf(w, "world size\t%d\n", reply.WorldSize)
	fmt.Fprintf(w, "pages\t%d: %d in RAM, %d on disk\n", reply.Pages.Total, reply.Pages.RAM, reply.Pages.Disk)
	fmt.Fprintf(w, "found in\t%s\n", took.Round(10*time.Microsecond))
	return w.Flush()
}
