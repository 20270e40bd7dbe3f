package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

const lsUsage = "ls [--json] [PATH]"

const lsAbout = `Lists the generations below PATH: a mount, a model, an identity or a generation (default: the working directory).

For each it shows its tokens, its kind, its state (current, superseded, fork), the tiers that have any of its pages
(ram, disk, both), the size of its pages (shared ones included), and how long ago it was published. "pinned" and
"leased" are added where they hold.

It reads names and the extended attributes user.ckptfs.*, opens no page, and so changes nothing. What the caller may
not read is left out, and said.`

func runLs(_ context.Context, args []string, io streams) error {
	fs := newFlags(io, lsUsage, lsAbout)
	asJSON := fs.Bool("json", false, "print one JSON object a line: model, identity, generation, tokens, kind, state, tier, bytes, published")
	if err := parseFlags(fs, args, 0, 1); err != nil {
		return err
	}
	path := "."
	if fs.NArg() == 1 {
		path = fs.Arg(0)
	}
	found, err := listGenerations(path)
	if found == nil && err != nil {
		return err
	}
	write := writeGenerations
	if *asJSON {
		write = writeGenerationsJSON
	}
	return errors.Join(write(io.out, found, time.Now()), err)
}

// writeGenerations prints a table for each identity.
func writeGenerations(out io.Writer, list []listedGeneration, now time.Time) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	last := ""
	for _, g := range list {
		if dir := g.Model + "/" + g.Identity; dir != last {
			if last != "" {
				w.Flush()
				b.WriteByte('\n')
			}
			last = dir
			fmt.Fprintf(&b, "%s\n", printable(dir))
			fmt.Fprint(w, "TOKENS\tKIND\tSTATE\tTIER\tSIZE\tAGE\t  GENERATION\n")
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t  %s%s\n", g.Tokens, g.Kind, orDash(g.State), orDash(g.Tier),
			sizeValue(g.Bytes).people(), age(g.Published, now), g.Generation, g.marks())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func writeGenerationsJSON(out io.Writer, list []listedGeneration, _ time.Time) error {
	encoder := json.NewEncoder(out)
	for _, g := range list {
		if err := encoder.Encode(g); err != nil {
			return err
		}
	}
	return nil
}

// marks are what is not the rule.
func (g listedGeneration) marks() string {
	text := ""
	if g.Pinned {
		text += "  pinned"
	}
	if g.Leases > 0 {
		text += "  leased"
	}
	return text
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// age is how long ago something was.
func age(then, now time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return uptime(max(now.Sub(then), 0).Seconds())
}
