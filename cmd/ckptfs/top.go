package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"ckptfs/fusefs"
)

const topUsage = "top [--once] [--every DURATION] MOUNT"

const topAbout = `Shows a mount live: what is wrong first, the tiers' fill, how much is stored, read, looked up, evicted per second, what
is being written and how far each rank is, the models that are used most, and the leases that have been held longest. As
much is shown as the terminal has room for. Ctrl-C ends it.

It reads status.json and leases.json in MOUNT/.ckptfs, which are for root only. Rates are over the time since the last
look; with --once they are over one interval.`

// clearScreen goes home and clears to the end of the screen: the least that every terminal knows.
const clearScreen = "\x1b[H\x1b[J"

func runTop(ctx context.Context, args []string, io streams) error {
	fs := newFlags(io, topUsage, topAbout)
	once := fs.Bool("once", false, "print it once, without clearing the screen")
	every := fs.Duration("every", time.Second, "how often to look")
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	if *every < 10*time.Millisecond {
		return withCode(exitUsage, fmt.Errorf("--every %v is too often; 100ms is the least that a person can read", *every))
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	before, err := look(fs.Arg(0))
	if err != nil {
		return err
	}
	ticker := time.NewTicker(*every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := look(fs.Arg(0))
		if err != nil {
			return err
		}
		text := topText(before, now, screenOf(io.out))
		if !*once {
			text = clearScreen + text
		}
		if _, err := fmt.Fprint(io.out, text); err != nil || *once {
			return err
		}
		before = now
	}
}

// screen is how much fits. A width of 0 is any.
type screen struct{ width, height int }

// screenOf is the size of the terminal; what is no terminal gets the lines of a small one, and whole lines.
func screenOf(out io.Writer) screen {
	if f, ok := out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return screen{w, h}
		}
	}
	return screen{height: 24}
}

// glance is a status at a time, and who holds what.
type glance struct {
	mountStatus
	held fusefs.LeaseList
	at   time.Time
}

func look(mount string) (glance, error) {
	text, err := readStatus(mount)
	if err != nil {
		return glance{}, err
	}
	g := glance{at: time.Now()}
	if err := json.Unmarshal(text, &g.mountStatus); err != nil {
		return g, fmt.Errorf("%s: status.json: %w", mount, err)
	}
	if text, err = readControl(mount, "leases.json"); err == nil { // an older daemon has none
		if err := json.Unmarshal(text, &g.held); err != nil {
			return g, fmt.Errorf("%s: leases.json: %w", mount, err)
		}
	}
	return g, nil
}
