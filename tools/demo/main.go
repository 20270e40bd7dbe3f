// Command demo shows the main job of ckptfs on real processes and real bytes:
// four ranks store and publish a generation, a continuation shares its history,
// another process finds the longest prefix of a request, four more restore it
// and compare every byte, and rm -r takes it away. Then more is stored than RAM
// holds: it comes back from disk, also after keeper and daemon were killed, and
// after a stop.
//
// It mounts in a temporary place, needs no network, cleans up whatever happens,
// and exits with 1 if anything was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// options are the flags.
type options struct {
	binary    string
	pageBytes int64
	l1Size    string
	tempDir   string
}

func (o *options) addFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.binary, "ckptfs", "bin/ckptfs", "the ckptfs binary to mount with")
	fs.Int64Var(&o.pageBytes, "page-bytes", 6893568, "size of a page; the default needs 4 GiB of free memory and 2 GiB of disk")
	fs.StringVar(&o.l1Size, "l1-size", "2GiB", "size of the RAM tier of the first half")
	fs.StringVar(&o.tempDir, "dir", "", "where to make the temporary directory (default: the system's)")
}

func main() {
	// The kernel ends our processes when the thread that started them ends, see
	// procAttr. So this goroutine keeps its thread.
	runtime.LockOSThread()
	if len(os.Args) == 2 && os.Args[1] == rankArgument {
		os.Exit(exitCode(runRank(os.Stdin, os.Stdout)))
	}
	var o options
	fs := flag.NewFlagSet("demo", flag.ExitOnError)
	o.addFlags(fs)
	_ = fs.Parse(os.Args[1:])
	if fs.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: %q is no flag; -help lists them\n", fs.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, o)
	if err == nil {
		fmt.Println("\nAll right: every byte was compared, and nothing is left behind.")
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
	return 1
}
