package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// ranks are processes that work at the same time.
type ranks []*rankProcess

// rankProcess is this program, started again.
type rankProcess struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	send    *json.Encoder
	receive *json.Decoder
}

// startRanks starts a process for each job and waits until all have prepared
// what they need. The end of ctx kills them.
func startRanks(ctx context.Context, jobs []job) (ranks, error) {
	var started ranks
	for _, j := range jobs {
		p, err := startRank(ctx)
		if err == nil {
			started = append(started, p)
			err = p.send.Encode(j)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start rank %d: %w", j.Rank, err), started.end())
		}
	}
	if _, err := started.collect(); err != nil {
		return nil, errors.Join(err, started.end())
	}
	return started, nil
}

func startRank(ctx context.Context) (*rankProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, self, rankArgument)
	command.SysProcAttr = procAttr(syscall.SIGKILL)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &rankProcess{command, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}, command.Start()
}

// round lets all ranks do their next round at once, and returns their results
// and the time until the last one was done.
func (r ranks) round() ([]result, time.Duration, error) {
	start := time.Now()
	for i, p := range r {
		if err := p.send.Encode(struct{}{}); err != nil {
			return nil, 0, fmt.Errorf("rank %d: %w", i, err)
		}
	}
	results, err := r.collect()
	return results, time.Since(start), err
}

func (r ranks) collect() ([]result, error) {
	results := make([]result, len(r))
	var errs []error
	for i, p := range r {
		if err := p.receive.Decode(&results[i]); err != nil {
			errs = append(errs, fmt.Errorf("rank %d is gone: %w", i, err))
		} else if results[i].Error != "" {
			errs = append(errs, fmt.Errorf("rank %d: %s", i, results[i].Error))
		}
	}
	return results, errors.Join(errs...)
}

// end lets the processes end, and with them their leases.
func (r ranks) end() error {
	var errs []error
	for i, p := range r {
		p.stdin.Close()
		if err := p.command.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}
