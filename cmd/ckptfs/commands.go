package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// streams are what a command reads and writes. Results go to out, everything for people goes to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// command is one verb of the command line. Each lives in a file of its own, which also holds its flags.
type command struct {
	name     string
	synopsis string // one line, for the list of commands
	hidden   bool   // not listed: started by ckptfs itself
	run      func(ctx context.Context, args []string, io streams) error
}

// commands is the table of everything that ckptfs can do, in the order in which help lists it.
func commands() []command {
	return []command{
		{name: "mount", synopsis: "mount and serve, in the foreground", run: runMount},
		{name: "upgrade", synopsis: "start the binary on disk in place of the one that serves a mount", run: runUpgrade},
		{name: "put", synopsis: "store and publish a generation from a directory", run: runPut},
		{name: "get", synopsis: "copy a generation into a directory", run: runGet},
		{name: "restore", synopsis: "publish the generations of a backup", run: runRestore},
		{name: "find", synopsis: "look up the longest published prefix of some tokens", run: runFind},
		{name: "why", synopsis: "tell what has happened to a generation", run: runWhy},
		{name: "status", synopsis: "show how a mount is, what is wrong first", run: runStatus},
		{name: "ls", synopsis: "list generations", run: runLs},
		{name: "top", synopsis: "show a mount live", run: runTop},
		{name: "clear", synopsis: "remove the generations that nobody uses", run: runClear},
		{name: "drop", synopsis: "empty the RAM tier without losing anything", run: runDrop},
		{name: "fsck", synopsis: "check a store that no daemon uses, and repair it", run: runFsck},
		{name: "identity", synopsis: "print the directory name of an identity document", run: runIdentity},
		{name: "version", synopsis: "print the version of this binary", run: runVersion},
		daemonCommandEntry(openFS),
	}
}

// run does what args ask for and returns the exit code. It is main, but for the process.
func run(ctx context.Context, table []command, args []string, io streams) int {
	if len(args) == 0 {
		writeHelp(io.err, table)
		return exitUsage
	}
	name := args[0]
	switch name {
	case "help", "-h", "--help":
		return runHelp(ctx, table, args[1:], io)
	case "--version":
		name = "version"
	}
	cmd := find(table, name)
	if cmd == nil {
		fmt.Fprintf(io.err, "ckptfs: there is no command %q; 'ckptfs help' lists them\n", name)
		return exitUsage
	}
	err := cmd.run(ctx, args[1:], io)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintf(io.err, "ckptfs %s: %s\n", cmd.name, msg)
	}
	return exitCodeOf(err)
}

func find(table []command, name string) *command {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

// runHelp is 'ckptfs help [COMMAND]'.
func runHelp(ctx context.Context, table []command, args []string, io streams) int {
	if len(args) == 0 {
		writeHelp(io.out, table)
		return exitOK
	}
	return run(ctx, table, []string{args[0], "--help"}, io)
}

func writeHelp(w io.Writer, table []command) {
	var b strings.Builder
	b.WriteString("ckptfs keeps inference checkpoints in RAM and on disk and shows them as files.\n\n")
	b.WriteString("usage: ckptfs COMMAND [flags] [arguments]\n\ncommands:\n")
	for _, c := range table {
		if !c.hidden {
			fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.synopsis)
		}
	}
	b.WriteString("\n'ckptfs COMMAND --help' explains a command and its flags.\n\nexit codes:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	io.WriteString(w, b.String())
}

// newFlags returns the flag set of a command. usage is the line after "usage: ckptfs ", about what the help says
// before the flags. A wrong flag is an error with exit code exitUsage, see parseFlags.
func newFlags(io streams, usage, about string) *pflag.FlagSet {
	name, _, _ := strings.Cut(usage, " ")
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.err)
	fs.Usage = func() {
		fmt.Fprintf(io.out, "usage: ckptfs %s\n\n%s\n", usage, strings.TrimSpace(about))
		if fs.HasAvailableFlags() {
			fmt.Fprintf(io.out, "\nflags:\n%s", fs.FlagUsagesWrapped(100))
		}
	}
	return fs
}

// parseFlags parses args and checks that between minArgs and maxArgs arguments are left (maxArgs < 0: any number).
// pflag.ErrHelp means that help was asked for and printed.
func parseFlags(fs *pflag.FlagSet, args []string, minArgs, maxArgs int) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return withCode(exitUsage, fmt.Errorf("%w; 'ckptfs %s --help' lists the flags", err, fs.Name()))
	}
	if n := fs.NArg(); n < minArgs || (maxArgs >= 0 && n > maxArgs) {
		return withCode(exitUsage, fmt.Errorf("%d arguments given; 'ckptfs %s --help' says which are expected", n, fs.Name()))
	}
	return nil
}
