package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"ckptfs/fusefs/client"
)

const (
	// ramPages and diskPages are the sizes of the tiers of the second half.
	ramPages  = 96
	diskPages = 300
	// conversations, each a prompt and its response, have more than twice as
	// many pages as RAM has room for.
	conversations = 4
	// ownBytes bounds what the disk tier keeps for itself when all is removed:
	// a few small files.
	ownBytes = 64 << 10
)

// tiersFlags make a RAM tier that is too small for what is stored.
func tiersFlags(pageBytes int64) []string {
	return []string{
		"--l1-size", strconv.FormatInt(ramPages*pageBytes, 10),
		"--l2-size", strconv.FormatInt(diskPages*pageBytes, 10),
	}
}

// tiers is the second half of the demo: more generations than RAM holds, which
// come back from disk, over a crash and over a stop.
type tiers struct {
	engine

	usedAtStart int64
	copied      int64 // distinct bytes published
	stored      []stored
}

// stored is a published generation.
type stored struct {
	turn
	name string
}

func (d *tiers) columns() []column {
	return []column{columnPages, columnCopied, columnToDisk, columnFromDisk, columnInRAM, columnTime, columnRate}
}

func (d *tiers) steps() []step {
	var steps []step
	for c := range conversations {
		name := fmt.Sprintf("conversation %d: 4 ranks publish both turns", c+1)
		steps = append(steps, step{name, func(ctx context.Context) (row, error) { return d.publishConversation(ctx, c+1) }})
	}
	return append(steps,
		step{"4 ranks restore the oldest, every byte compared", d.restoreOldestFromDisk},
		step{"4 ranks restore the newest", d.restoreNewest},
		step{"SIGKILL of keeper and daemon, mounted again", d.crash},
		step{"4 ranks restore the newest, from adopted RAM", d.restoreNewestFromRAM},
		step{"4 ranks restore the oldest", d.restoreOldest},
		step{"SIGTERM, all goes to disk, mounted again", d.restart},
		step{"4 ranks restore all 8 generations, from disk", d.restoreEverything},
		step{"rm -r of the model, df is as at the start", d.removeModel},
	)
}

// publishConversation publishes a prompt and its response. After the last
// conversation there must be more than twice of what RAM holds.
func (d *tiers) publishConversation(ctx context.Context, c int) (row, error) {
	if len(d.stored) == 0 {
		used, err := d.used()
		if err != nil {
			return row{}, err
		}
		d.usedAtStart = used
		if err := d.identify(ctx); err != nil {
			return row{}, err
		}
	}
	r, after, err := d.watched(ctx, func() (r row, err error) {
		for _, t := range []turn{{c, client.KindPrompt, 7700}, {c, client.KindResponse, 8900}} {
			part, name, err := d.publish(ctx, t, 1)
			if err != nil {
				return r, err
			}
			d.stored = append(d.stored, stored{t, name})
			r.pages += part.pages
			r.copiedBytes += part.copiedBytes
			r.took += part.took
		}
		return r, nil
	})
	if err != nil {
		return r, err
	}
	d.copied += r.copiedBytes
	if after.Generations != len(d.stored) {
		return r, fmt.Errorf("there are %d generations instead of %d", after.Generations, len(d.stored))
	}
	if c == conversations && (d.copied < 2*after.RAM.SizeBytes || after.Disk.UsedBytes < d.copied-after.RAM.UsedBytes) {
		return r, fmt.Errorf("of %d bytes in pages, %d are in RAM and %d on disk", d.copied, after.RAM.UsedBytes, after.Disk.UsedBytes)
	}
	return r, nil
}

// watched does something, waits until the tiers are at rest, and adds to the
// row what they did.
func (d *tiers) watched(ctx context.Context, do func() (row, error)) (r row, after status, err error) {
	before, err := d.mounted.status()
	if err != nil {
		return r, after, err
	}
	if r, err = do(); err != nil {
		return r, after, err
	}
	if after, err = d.mounted.settled(ctx); err != nil {
		return r, after, err
	}
	r.toDisk = after.Counters.DiskWrittenBytes - before.Counters.DiskWrittenBytes
	r.fromDisk = after.Counters.LoadedBytes - before.Counters.LoadedBytes
	r.inRAM = after.RAM.UsedBytes
	return r, after, nil
}

// removeModel removes everything at once; all space must come back.
func (d *tiers) removeModel(ctx context.Context) (row, error) {
	pages := int(d.copied / d.pageBytes)
	r, err := d.remove(ctx, filepath.Dir(d.identityDir), pages)
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := d.awaitUsed(ctx, d.usedAtStart+ownBytes); err != nil {
		return r, err
	}
	r.took += time.Since(start)
	s, err := d.mounted.settled(ctx)
	if err == nil && (s.Generations > 0 || s.RAM.Pages > 0) {
		err = fmt.Errorf("%d generations and %d pages in RAM are left", s.Generations, s.RAM.Pages)
	}
	return r, err
}
