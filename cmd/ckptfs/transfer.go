package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ckptfs/fusefs/client"
)

// tally is what a transfer did. Shared pages needed no copy.
type tally struct {
	copiedPages, sharedPages int64
	copiedBytes, sharedBytes int64
	took                     time.Duration
}

// share counts those of all the pages that were not copied as shared.
func (t *tally) share(all []client.Page) {
	t.sharedPages = int64(len(all)) - t.copiedPages
	t.sharedBytes = totalBytes(all) - t.copiedBytes
}

// rate is the speed of the copying, in the unit in which memory and disks are sold.
func (t tally) rate() string {
	if t.copiedBytes == 0 || t.took <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f GB/s", float64(t.copiedBytes)/1e9/t.took.Seconds())
}

// transfer copies pages, several at once.
type transfer struct {
	jobs int
	// label stands before the progress bar.
	label string
	// progress is where the bar is drawn if it is a terminal.
	progress io.Writer
}

// run calls copyPage for every page. copyPage returns false if there was nothing to copy. The first error ends all.
func (t transfer) run(ctx context.Context, pages []client.Page, copyPage func(context.Context, client.Page) (bool, error)) (tally, error) {
	bar := newByteBar(t.progress, t.label, totalBytes(pages))
	var copiedPages, copiedBytes atomic.Int64
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(t.jobs, 1))
	for _, page := range pages {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			copied, err := copyPage(ctx, page)
			if err != nil {
				return err
			}
			if copied {
				copiedPages.Add(1)
				copiedBytes.Add(page.Bytes)
			}
			bar.add(page.Bytes)
			return nil
		})
	}
	err := group.Wait()
	done := tally{copiedPages: copiedPages.Load(), copiedBytes: copiedBytes.Load(), took: time.Since(start)}
	bar.end()
	return done, err
}

// untilSignal gives a context that ends with the first SIGINT or SIGTERM. Another one, after signalBurst, ends the
// process: a file call that hangs hears of no context.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, func() { time.Sleep(signalBurst); stop() })
	return ctx, stop
}

// interrupted says in words that a signal ended a transfer.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

func totalBytes(pages []client.Page) int64 {
	var sum int64
	for _, page := range pages {
		sum += page.Bytes
	}
	return sum
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
