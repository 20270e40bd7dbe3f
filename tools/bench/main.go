// Command bench measures ckptfs against its targets. It starts the built binary
// and the baselines by itself, lets separate processes do the same work on both,
// one after the other and again and again, and prints what each row of the table
// gave: ours, the baseline, the ratio, the target, and what this machine could
// do at best.
//
//	bench [flags]         the table
//	bench scale [flags]   stores of 1,000, 10,000 and 65,536 generations
//	bench concurrency [flags]   opens beside other work, and many clients at a time
//	bench soak [flags]    a million opens, and 100,000 generations made and removed
//
// The mounts run with default flags but for the size of the RAM tier and the
// places, so what is measured is what a user gets.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/spf13/pflag"

	"ckptfs/pages"
)

// options are the flags.
type options struct {
	binary  string
	dir     string
	json    bool
	quick   bool
	only    []string
	repeats int
	sizes   []int // of scale

	generations int // of concurrency
	opens       int // of soak
	cycles      int
}

func (o *options) addFlags(fs *pflag.FlagSet, command string) {
	fs.StringVar(&o.binary, "ckptfs", "bin/ckptfs", "the ckptfs binary to measure")
	fs.StringVar(&o.dir, "dir", "", "where to make the temporary directory; its disk is the disk of the table (default: the system's)")
	fs.BoolVar(&o.json, "json", false, "print one JSON document instead of the table")
	fs.StringSliceVar(&o.only, "only", nil, "measure these rows alone, by name")
	switch command {
	case "scale":
		fs.IntSliceVar(&o.sizes, "generations", []int{1_000, 10_000, 65_536}, "sizes of the stores")
		return
	case "concurrency":
		fs.IntVar(&o.generations, "generations", 65_536, "size of the store")
		fs.IntVar(&o.repeats, "repeats", 5, "repetitions of each measurement")
		return
	case "soak":
		fs.IntVar(&o.opens, "opens", 1_000_000, "opens of pages, with read and close")
		fs.IntVar(&o.cycles, "cycles", 100_000, "generations staged, published and removed")
		return
	}
	fs.BoolVar(&o.quick, "quick", false, "about two minutes: fewer repetitions, 10,000 generations in place of 65,536")
	fs.IntVar(&o.repeats, "repeats", 0, "repetitions of each measurement (default 15, quick 7)")
}

func main() {
	// The kernel ends our processes when the thread that started them ends, see
	// procAttr. So this goroutine keeps its thread.
	runtime.LockOSThread()
	if len(os.Args) == 2 && os.Args[1] == workerArgument {
		os.Exit(exitCode(runWorker(os.Stdin, os.Stdout)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	stop()
	os.Exit(exitCode(err))
}

func run(ctx context.Context, args []string) error {
	var o options
	command := "table"
	if len(args) > 0 && commands[args[0]] != nil {
		command, args = args[0], args[1:]
	}
	fs := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	o.addFlags(fs, command)
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q is no flag; --help lists them", fs.Arg(0))
	}
	if o.repeats == 0 {
		o.repeats = 15
		if o.quick {
			o.repeats = 7
		}
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(commands[command](b), b.cleanUp())
}

var commands = map[string]func(*bench) error{
	"table": (*bench).table, "scale": (*bench).scale, "concurrency": (*bench).concurrency,
	"soak": (*bench).soak,
}

// bench is one run: its places, its mounts and its processes.
type bench struct {
	ctx    context.Context
	o      options
	base   string // on the disk
	shm    string // in /dev/shm
	huge   string // a tmpfs with huge pages, see onHuge; "" before
	mounts []*mounted
	pool   []*worker
	held   []*os.File   // open while it runs
	count  atomic.Int64 // of names that must differ
}

func newBench(ctx context.Context, o options) (*bench, error) {
	var err error
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.binary); err != nil {
		return nil, fmt.Errorf("%w; `make build` makes it, or name another with --ckptfs", err)
	}
	b := &bench{ctx: ctx, o: o}
	if b.base, err = os.MkdirTemp(o.dir, "ckptfs-bench-"); err != nil {
		return nil, err
	}
	if b.shm, err = os.MkdirTemp("/dev/shm", "ckptfs-bench-"); err != nil {
		return nil, errors.Join(err, os.Remove(b.base))
	}
	return b, nil
}

// cleanUp ends the processes and mounts and removes the directories, whatever
// has happened.
func (b *bench) cleanUp() error {
	for _, f := range b.held {
		f.Close()
	}
	for _, w := range b.pool {
		w.end()
	}
	var err error
	for _, m := range b.mounts {
		err = errors.Join(err, m.cleanUp())
	}
	if b.huge != "" {
		err = errors.Join(err, pages.UnmountRAM(b.huge, false))
	}
	return errors.Join(err, os.RemoveAll(b.shm), os.RemoveAll(b.base))
}

// note tells how far it is, beside the output.
func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "bench: %v\n", err)
	return 1
}
