package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ckptfs/fusefs/client"
)

// step is one line of the demo's table.
type step struct {
	name string
	run  func(context.Context) (row, error)
}

// sharing is the first half of the demo: everything fits the RAM tier. It holds
// what the steps hand on to each other.
type sharing struct {
	engine

	promptName, responseName string
}

func (d *sharing) columns() []column {
	return []column{columnPages, columnCopied, columnShared, columnTime, columnRate}
}

func (d *sharing) steps() []step {
	return []step{
		{"4 ranks publish a prompt of 40,239 tokens", d.publishPrompt},
		{"4 ranks publish the same again", d.replayPrompt},
		{"4 ranks publish its response, 41,502 tokens", d.publishResponse},
		{"a new process looks up 41,760 tokens", d.findResponse},
		{"4 ranks restore what it found", d.read},
		{"4 ranks compare every byte", d.compare},
		{"rm -r of the response, the prompt stays", d.deleteResponse},
		{"rm -r of the prompt, nothing stays", d.deletePrompt},
	}
}

func (d *sharing) publishPrompt(ctx context.Context) (r row, err error) {
	if err := d.identify(ctx); err != nil {
		return r, err
	}
	r, d.promptName, err = d.publish(ctx, prompt, 1)
	if err == nil && r.sharedBytes != 0 {
		err = fmt.Errorf("%d bytes were shared with nothing", r.sharedBytes)
	}
	return r, err
}

func (d *sharing) replayPrompt(ctx context.Context) (row, error) {
	r, _, err := d.publish(ctx, prompt, 0)
	if err == nil && r.copiedBytes != 0 {
		err = fmt.Errorf("a replay wrote %d bytes", r.copiedBytes)
	}
	return r, err
}

func (d *sharing) publishResponse(ctx context.Context) (r row, err error) {
	r, d.responseName, err = d.publish(ctx, response, 1)
	if err != nil {
		return r, err
	}
	want := int64(prompt.NumTokens/pageTokens) * worldSize * d.pageBytes
	if r.sharedBytes != want {
		return r, fmt.Errorf("%d bytes were shared instead of the %d of the unchanged history", r.sharedBytes, want)
	}
	first := client.PagePath(0, "target.attention.0", 0)
	a, errA := os.Stat(filepath.Join(d.identityDir, d.promptName, first))
	b, errB := os.Stat(filepath.Join(d.identityDir, d.responseName, first))
	if err := errors.Join(errA, errB); err != nil {
		return r, err
	}
	if !os.SameFile(a, b) {
		return r, fmt.Errorf("%s is not one file in both generations", first)
	}
	return r, nil
}

func (d *sharing) findResponse(ctx context.Context) (row, error) {
	r, _, err := d.find(ctx, response, d.responseName)
	return r, err
}

func (d *sharing) read(ctx context.Context) (r row, err error) {
	if err := d.startRestore(ctx, response, d.responseName); err != nil {
		return r, err
	}
	return d.restoreRound()
}

func (d *sharing) compare(context.Context) (r row, err error) {
	if r, err = d.restoreRound(); err != nil {
		return r, err
	}
	if want := response.pageCount(); r.pages != want {
		return r, fmt.Errorf("%d pages were restored instead of %d", r.pages, want)
	}
	return r, d.endRestore()
}
