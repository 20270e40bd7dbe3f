package main

import (
	"context"
	"errors"
	"fmt"

	"ckptfs/fusefs/client"
)

// engine is what both halves of the demo do with rank processes on a mount.
type engine struct {
	mounted     *mounted
	pageBytes   int64
	identityDir string
	attempts    int

	lookup, restore ranks // running, or nil
}

// identify makes the identity's directory.
func (e *engine) identify(ctx context.Context) (err error) {
	e.identityDir, err = client.Identify(ctx, e.mounted.path, modelName, identityDocument(e.pageBytes))
	return err
}

// endRanks ends what a failed step left running.
func (e *engine) endRanks() {
	_ = errors.Join(e.lookup.end(), e.restore.end()) // the failure is reported already
}

// jobs are the jobs of four ranks.
func (e *engine) jobs(op string, t turn) []job {
	jobs := make([]job, worldSize)
	for rank := range jobs {
		jobs[rank] = job{Op: op, Rank: rank, IdentityDir: e.identityDir, PageBytes: e.pageBytes, turn: t}
	}
	return jobs
}

// publish lets four ranks store a generation. They race for the rename, which
// so many of them must win.
func (e *engine) publish(ctx context.Context, t turn, winners int) (r row, name string, err error) {
	e.attempts++
	jobs := e.jobs(opStore, t)
	for i := range jobs {
		jobs[i].Staging = fmt.Sprintf("attempt-%d", e.attempts)
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
	won := 0
	for _, result := range results {
		r.pages += result.Pages
		r.copiedBytes += result.CopiedBytes
		r.sharedBytes += result.SharedBytes
		if !result.Replay {
			won++
		}
		name = result.Generation
	}
	if won != winners {
		return r, name, fmt.Errorf("%d renames succeeded instead of %d", won, winners)
	}
	return r, name, nil
}

// find lets a new process look up what continues t, and keep the lease. The
// answer must be a certain generation; disk is how many pages RAM did not have.
func (e *engine) find(ctx context.Context, t turn, want string) (r row, disk int, err error) {
	e.lookup, err = startRanks(ctx, []job{{Op: opFind, IdentityDir: e.identityDir, turn: t.next()}})
	if err != nil {
		return r, 0, err
	}
	return e.findAgain(want)
}

// findAgain looks up the same request, whose answer now may be none.
func (e *engine) findAgain(want string) (r row, disk int, err error) {
	results, took, err := e.lookup.round()
	if err != nil {
		return r, 0, err
	}
	got := results[0]
	if got.Generation != want {
		return r, 0, fmt.Errorf("the lookup found %q (%s) instead of %q", got.Generation, got.Reason, want)
	}
	return row{pages: got.Pages, took: took}, got.DiskPages, nil
}

// endLookup gives the lease back.
func (e *engine) endLookup() error {
	procs := e.lookup
	e.lookup = nil
	return procs.end()
}

// startRestore starts four ranks, with memory for the pages of a generation.
func (e *engine) startRestore(ctx context.Context, t turn, generation string) (err error) {
	jobs := e.jobs(opRestore, t)
	for i := range jobs {
		jobs[i].Generation = generation
	}
	e.restore, err = startRanks(ctx, jobs)
	return err
}

// restoreRound reads all pages in the first round, and compares every byte in
// the second.
func (e *engine) restoreRound() (r row, err error) {
	results, took, err := e.restore.round()
	r.took = took
	for _, result := range results {
		r.pages += result.Pages
		r.copiedBytes += result.CopiedBytes
	}
	return r, err
}

func (e *engine) endRestore() error {
	procs := e.restore
	e.restore = nil
	return procs.end()
}

// restoreAll starts, reads, compares and ends. The row is that of reading.
func (e *engine) restoreAll(ctx context.Context, t turn, generation string) (r row, err error) {
	if err := e.startRestore(ctx, t, generation); err != nil {
		return r, err
	}
	if r, err = e.restoreRound(); err != nil {
		return r, err
	}
	if _, err := e.restoreRound(); err != nil {
		return r, err
	}
	if want := t.pageCount(); r.pages != want {
		return r, fmt.Errorf("%d pages were restored instead of %d", r.pages, want)
	}
	return r, e.endRestore()
}
