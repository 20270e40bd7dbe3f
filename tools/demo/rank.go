package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// rankArgument is the hidden argument that makes this program one rank of an
// engine, told by its standard input what to do.
const rankArgument = "rank"

// The operations of a rank process.
const (
	opStore   = "store"   // rounds: stage, write, publish
	opFind    = "find"    // rounds: look up; the lease is held until the end
	opRestore = "restore" // rounds: read into memory; compare
)

// job is the first thing on a rank's standard input. After it, each further
// JSON value makes the rank do its next round.
type job struct {
	Op          string `json:"op"`
	Rank        int    `json:"rank"`
	IdentityDir string `json:"identity_dir"`
	PageBytes   int64  `json:"page_bytes"`
	// turn is the generation's, or the request of a lookup.
	turn
	// Staging is the name of a store's attempt.
	Staging string `json:"staging"`
	// Generation is what a restore reads.
	Generation string `json:"generation"`
}

// result is what a rank answers to its job and after each round.
type result struct {
	Error       string `json:"error,omitempty"`
	Pages       int    `json:"pages,omitempty"`
	DiskPages   int    `json:"disk_pages,omitempty"` // of Pages, those that RAM did not have
	CopiedBytes int64  `json:"copied_bytes,omitempty"`
	SharedBytes int64  `json:"shared_bytes,omitempty"`
	Generation  string `json:"generation,omitempty"`
	// Replay is false for the one rank that made a generation visible.
	Replay bool `json:"replay,omitempty"`
	// Reason is why a lookup found nothing.
	Reason string `json:"reason,omitempty"`
}

// worker does the rounds of one operation.
type worker interface {
	round(n int) (result, error)
	close()
}

// runRank is a rank process. It ends when its standard input does.
func runRank(in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := requests.Decode(&j); err != nil {
		return fmt.Errorf("rank: the job: %w", err)
	}
	w, err := newWorker(j)
	if err != nil {
		return answers.Encode(result{Error: err.Error()})
	}
	defer w.close()
	if err := answers.Encode(result{}); err != nil {
		return err
	}
	for n := 0; ; n++ {
		var start json.RawMessage
		if err := requests.Decode(&start); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("rank %d: %w", j.Rank, err)
		}
		r, err := w.round(n)
		if err != nil {
			r.Error = err.Error()
		}
		if err := answers.Encode(r); err != nil {
			return err
		}
	}
}

// newWorker prepares an operation: all that an engine would have ready before.
func newWorker(j job) (worker, error) {
	switch j.Op {
	case opStore:
		return newStore(j), nil
	case opFind:
		return &lookup{job: j}, nil
	case opRestore:
		return newRestore(j), nil
	}
	return nil, fmt.Errorf("rank: there is no operation %q", j.Op)
}
