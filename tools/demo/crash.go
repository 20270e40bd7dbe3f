package main

import (
	"context"
	"fmt"
	"time"
)

// restoreOne looks a generation up in a new process and restores it by four
// more. disk is how many of its pages RAM did not have.
func (d *tiers) restoreOne(ctx context.Context, s stored) (r row, disk int, err error) {
	if _, disk, err = d.find(ctx, s.turn, s.name); err != nil {
		return r, disk, err
	}
	if r, err = d.restoreAll(ctx, s.turn, s.name); err != nil {
		return r, disk, err
	}
	return r, disk, d.endLookup()
}

// restoreSome restores generations, one after the other; so many of their pages,
// at least, must not be in RAM when they are looked up.
func (d *tiers) restoreSome(ctx context.Context, some []stored, fromDisk int) (r row, err error) {
	missed := 0
	r, _, err = d.watched(ctx, func() (r row, err error) {
		for _, s := range some {
			part, disk, err := d.restoreOne(ctx, s)
			if err != nil {
				return r, fmt.Errorf("%s: %w", s.name, err)
			}
			missed += disk
			r.pages += part.pages
			r.copiedBytes += part.copiedBytes
			r.took += part.took
		}
		return r, nil
	})
	if err == nil && missed < fromDisk {
		err = fmt.Errorf("%d pages had to come from disk, expected at least %d", missed, fromDisk)
	}
	return r, err
}

func (d *tiers) oldest() []stored { return d.stored[:1] }
func (d *tiers) newest() []stored { return d.stored[len(d.stored)-1:] }

func (d *tiers) restoreOldestFromDisk(ctx context.Context) (row, error) {
	return d.restoreSome(ctx, d.oldest(), 1)
}

func (d *tiers) restoreOldest(ctx context.Context) (row, error) {
	return d.restoreSome(ctx, d.oldest(), 0)
}

func (d *tiers) restoreNewest(ctx context.Context) (row, error) {
	return d.restoreSome(ctx, d.newest(), 0)
}

// restoreNewestFromRAM restores what was read last before the crash. RAM had it
// then, if not all: what eviction took since must come from disk.
func (d *tiers) restoreNewestFromRAM(ctx context.Context) (row, error) {
	r, err := d.restoreSome(ctx, d.newest(), 0)
	if err == nil && r.fromDisk > r.copiedBytes/2 {
		err = fmt.Errorf("%d bytes of %d came from disk, though RAM was full of them before the crash", r.fromDisk, r.copiedBytes)
	}
	return r, err
}

// restoreEverything restores all generations after a stop has emptied RAM.
func (d *tiers) restoreEverything(ctx context.Context) (row, error) {
	return d.restoreSome(ctx, d.stored, int(d.copied/d.pageBytes)-ramPages)
}

// crash kills keeper and daemon and mounts again with the same state: the dead
// mount is cleared, and RAM is as it was.
func (d *tiers) crash(ctx context.Context) (r row, err error) {
	before, err := d.mounted.settled(ctx)
	if err != nil {
		return r, err
	}
	if err := d.mounted.kill(ctx); err != nil {
		return r, err
	}
	start := time.Now()
	if err := d.mounted.start(ctx); err != nil {
		return r, err
	}
	r.took = time.Since(start)
	after, err := d.mounted.settled(ctx)
	if err != nil {
		return r, err
	}
	if after.KeeperPID == before.KeeperPID || after.PID == before.PID {
		return r, fmt.Errorf("the processes %d and %d are those that were killed", after.KeeperPID, after.PID)
	}
	if after.Generations != before.Generations || after.RAM.Pages != before.RAM.Pages {
		return r, fmt.Errorf("there are %d generations and %d pages in RAM; before the crash %d and %d",
			after.Generations, after.RAM.Pages, before.Generations, before.RAM.Pages)
	}
	r.pages, r.inRAM = after.RAM.Pages, after.RAM.UsedBytes
	return r, nil
}

// restart stops the mount, which writes to disk what is in RAM only, and mounts
// again, with an empty RAM tier.
func (d *tiers) restart(ctx context.Context) (r row, err error) {
	before, err := d.mounted.settled(ctx)
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := d.mounted.stop(ctx); err != nil {
		return r, err
	}
	if err := d.mounted.start(ctx); err != nil {
		return r, err
	}
	r.took = time.Since(start)
	after, err := d.mounted.settled(ctx)
	if err != nil {
		return r, err
	}
	if after.Generations != before.Generations || after.RAM.Pages > 0 || after.Disk.UsedBytes < d.copied {
		return r, fmt.Errorf("there are %d generations of %d, %d pages in RAM, and %d bytes on disk of the %d published",
			after.Generations, before.Generations, after.RAM.Pages, after.Disk.UsedBytes, d.copied)
	}
	// The counters are the new daemon's; what the old one wrote, the disk tells.
	r.pages, r.toDisk = int(d.copied/d.pageBytes), after.Disk.UsedBytes-before.Disk.UsedBytes
	return r, nil
}
