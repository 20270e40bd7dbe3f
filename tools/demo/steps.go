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

// demo is what the steps hand on to each other.
type demo struct {
	mounted     *mounted
	pageBytes   int64
	identityDir string
	attempts    int

	promptName, responseName string
	lookup, restore          ranks // running, or nil
}

func newDemo(m *mounted, o options) *demo {
	return &demo{mounted: m, pageBytes: o.pageBytes}
}

func (d *demo) steps() []step {
	return []step{
		{"4 ranks publish a prompt of 40,239 tokens", d.publishPrompt},
		{"4 ranks publish the same again", d.replayPrompt},
		{"4 ranks publish its response, 41,502 tokens", d.publishResponse},
		{"a new process looks up 41,760 tokens", d.find},
		{"4 ranks restore what it found", d.read},
		{"4 ranks compare every byte", d.compare},
		{"rm -r of the response, the prompt stays", d.deleteResponse},
		{"rm -r of the prompt, nothing stays", d.deletePrompt},
	}
}

// endRanks ends what a failed step left running.
func (d *demo) endRanks() {
	_ = errors.Join(d.lookup.end(), d.restore.end()) // the failure is reported already
}

func (d *demo) publishPrompt(ctx context.Context) (r row, err error) {
	d.identityDir, err = client.Identify(ctx, d.mounted.path, modelName, identityDocument(d.pageBytes))
	if err != nil {
		return r, err
	}
	r, d.promptName, err = d.publish(ctx, client.KindPrompt, promptTokens)
	if err == nil && r.sharedBytes != 0 {
		err = fmt.Errorf("%d bytes were shared with nothing", r.sharedBytes)
	}
	return r, err
}

func (d *demo) replayPrompt(ctx context.Context) (row, error) {
	r, _, err := d.publish(ctx, client.KindPrompt, promptTokens)
	if err == nil && r.copiedBytes != 0 {
		err = fmt.Errorf("a replay wrote %d bytes", r.copiedBytes)
	}
	return r, err
}

func (d *demo) publishResponse(ctx context.Context) (r row, err error) {
	r, d.responseName, err = d.publish(ctx, client.KindResponse, responseTokens)
	if err != nil {
		return r, err
	}
	want := int64(promptTokens/pageTokens) * worldSize * d.pageBytes
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

// publish lets four ranks store a generation, which race for the rename.
func (d *demo) publish(ctx context.Context, kind string, numTokens int) (r row, name string, err error) {
	d.attempts++
	jobs := make([]job, worldSize)
	for rank := range jobs {
		jobs[rank] = job{Op: opStore, Rank: rank, IdentityDir: d.identityDir, PageBytes: d.pageBytes,
			Kind: kind, NumTokens: numTokens, Staging: fmt.Sprintf("attempt-%d", d.attempts)}
	}
	procs, err := startRanks(ctx, jobs)
	if err != nil {
		return r, "", err
	}
	results, took, err := procs.round()
	if err := errors.Join(err, procs.end()); err != nil {
		return r, "", err
	}
	r.took = took
	winners := 0
	for _, result := range results {
		r.pages += result.Pages
		r.copiedBytes += result.CopiedBytes
		r.sharedBytes += result.SharedBytes
		if !result.Replay {
			winners++
		}
		name = result.Generation
	}
	want := 1
	if name == d.promptName {
		want = 0 // published before
	}
	if winners != want {
		return r, name, fmt.Errorf("%d renames succeeded instead of %d", winners, want)
	}
	return r, name, nil
}

func (d *demo) find(ctx context.Context) (r row, err error) {
	d.lookup, err = startRanks(ctx, []job{{Op: opFind, IdentityDir: d.identityDir, NumTokens: requestTokens}})
	if err != nil {
		return r, err
	}
	return d.findAgain(d.responseName)
}

// findAgain looks up the request and wants a certain answer, which may be none.
func (d *demo) findAgain(want string) (row, error) {
	results, took, err := d.lookup.round()
	if err != nil {
		return row{}, err
	}
	if got := results[0]; got.Generation != want {
		return row{}, fmt.Errorf("the lookup found %q (%s) instead of %q", got.Generation, got.Reason, want)
	}
	return row{pages: results[0].Pages, took: took}, nil
}

func (d *demo) read(ctx context.Context) (r row, err error) {
	if err := d.startRestore(ctx, client.KindResponse, responseTokens, d.responseName); err != nil {
		return r, err
	}
	return d.restoreRound()
}

func (d *demo) compare(context.Context) (r row, err error) {
	if r, err = d.restoreRound(); err != nil {
		return r, err
	}
	if want := pageCount(manifest(client.KindResponse, responseTokens, d.pageBytes)); r.pages != want {
		return r, fmt.Errorf("%d pages were restored instead of %d", r.pages, want)
	}
	procs := d.restore
	d.restore = nil
	return r, procs.end()
}

func (d *demo) startRestore(ctx context.Context, kind string, numTokens int, generation string) (err error) {
	jobs := make([]job, worldSize)
	for rank := range jobs {
		jobs[rank] = job{Op: opRestore, Rank: rank, IdentityDir: d.identityDir, PageBytes: d.pageBytes,
			Kind: kind, NumTokens: numTokens, Generation: generation}
	}
	d.restore, err = startRanks(ctx, jobs)
	return err
}

func (d *demo) restoreRound() (r row, err error) {
	results, took, err := d.restore.round()
	r.took = took
	for _, result := range results {
		r.pages += result.Pages
		r.copiedBytes += result.CopiedBytes
	}
	return r, err
}
