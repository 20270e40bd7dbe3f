package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"ckptfs/fusefs/client"
)

// deleteResponse removes the longer generation. What it shares with the prompt
// stays: the lookup falls back on the prompt, whose bytes are compared again.
func (d *demo) deleteResponse(ctx context.Context) (row, error) {
	r, err := d.remove(ctx, d.responseName, pageCount(manifest(client.KindResponse, responseTokens, d.pageBytes)))
	if err != nil {
		return r, err
	}
	if _, err := d.findAgain(d.promptName); err != nil {
		return r, err
	}
	if err := d.startRestore(ctx, client.KindPrompt, promptTokens, d.promptName); err != nil {
		return r, err
	}
	_, errRead := d.restoreRound()
	_, errCompare := d.restoreRound()
	procs := d.restore
	d.restore = nil
	return r, errors.Join(errRead, errCompare, procs.end())
}

// deletePrompt removes the last generation; all space must come back.
func (d *demo) deletePrompt(ctx context.Context) (row, error) {
	r, err := d.remove(ctx, d.promptName, pageCount(manifest(client.KindPrompt, promptTokens, d.pageBytes)))
	if err != nil {
		return r, err
	}
	if _, err := d.findAgain(""); err != nil {
		return r, err
	}
	procs := d.lookup
	d.lookup = nil
	if err := procs.end(); err != nil {
		return r, err
	}
	return r, d.awaitEmpty(ctx)
}

// remove is rm -r, which must succeed in silence.
func (d *demo) remove(ctx context.Context, generation string, pages int) (row, error) {
	start := time.Now()
	said, err := exec.CommandContext(ctx, "rm", "-r", filepath.Join(d.identityDir, generation)).CombinedOutput()
	if err != nil || len(said) > 0 {
		return row{}, fmt.Errorf("rm -r %s: %v: %s", generation, err, said)
	}
	return row{pages: pages, took: time.Since(start)}, nil
}

// awaitEmpty waits until the mount has all of its space again: it comes back at
// the last close, and a close reaches the filesystem after close(2) returned.
func (d *demo) awaitEmpty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		var st syscall.Statfs_t
		if err := syscall.Statfs(d.mounted.path, &st); err != nil {
			return fmt.Errorf("statfs %s: %w", d.mounted.path, err)
		}
		used := int64(st.Blocks-st.Bfree) * st.Bsize
		if used < d.pageBytes {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d bytes are still in use after everything was removed", used)
		}
	}
}
