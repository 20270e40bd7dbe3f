package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// spaceWithin is how long the space of what was removed may take to come back.
const spaceWithin = 10 * time.Second

// deleteResponse removes the longer generation. What it shares with the prompt
// stays: the lookup falls back on the prompt, whose bytes are compared again.
func (d *sharing) deleteResponse(ctx context.Context) (row, error) {
	r, err := d.remove(ctx, filepath.Join(d.identityDir, d.responseName), response.pageCount())
	if err != nil {
		return r, err
	}
	if _, _, err := d.findAgain(d.promptName); err != nil {
		return r, err
	}
	_, err = d.restoreAll(ctx, prompt, d.promptName)
	return r, err
}

// deletePrompt removes the last generation; all space must come back.
func (d *sharing) deletePrompt(ctx context.Context) (row, error) {
	r, err := d.remove(ctx, filepath.Join(d.identityDir, d.promptName), prompt.pageCount())
	if err != nil {
		return r, err
	}
	if _, _, err := d.findAgain(""); err != nil {
		return r, err
	}
	if err := d.endLookup(); err != nil {
		return r, err
	}
	return r, d.awaitUsed(ctx, d.pageBytes)
}

// remove is rm -r, which must succeed in silence.
func (e *engine) remove(ctx context.Context, dir string, pages int) (row, error) {
	start := time.Now()
	said, err := exec.CommandContext(ctx, "rm", "-r", dir).CombinedOutput()
	if err != nil || len(said) > 0 {
		return row{}, fmt.Errorf("rm -r %s: %v: %s", dir, err, said)
	}
	return row{pages: pages, took: time.Since(start)}, nil
}

// used is what df says.
func (e *engine) used() (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(e.mounted.path, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", e.mounted.path, err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil
}

// awaitUsed waits until less than limit is in use: space comes back at the last
// close, and a close reaches the filesystem after close(2) returned.
func (e *engine) awaitUsed(ctx context.Context, limit int64) error {
	return await(ctx, spaceWithin, func() error {
		used, err := e.used()
		if err == nil && used >= limit {
			err = fmt.Errorf("%d bytes are still in use after everything was removed", used)
		}
		return err
	})
}

// await asks again and again until it holds. In the end it gives the last reason.
func await(ctx context.Context, within time.Duration, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
