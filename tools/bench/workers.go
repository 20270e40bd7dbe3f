package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// worker is a client process.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

func startWorker() (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(self, workerArgument)}
	w.cmd.SysProcAttr = procAttr(syscall.SIGKILL)
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.enc, w.dec = json.NewEncoder(w.in), json.NewDecoder(bufio.NewReader(out))
	return w, w.cmd.Start()
}

// until has the process do a job until f has come to its end.
func (w *worker) until(j job, f func() error) (o outcome, err error) {
	j.UntilStop = true
	var ready outcome
	if err := errors.Join(w.enc.Encode(j), w.dec.Decode(&ready), w.enc.Encode("begin")); err != nil {
		return o, fmt.Errorf("a client process: %w", err)
	}
	failed := f()
	if err := errors.Join(w.enc.Encode("stop"), w.dec.Decode(&o)); err != nil {
		return o, fmt.Errorf("a client process: %w", err)
	}
	if o.Err != "" {
		failed = errors.Join(failed, errors.New(o.Err))
	}
	return o, failed
}

func (w *worker) end() {
	w.in.Close()
	_ = w.cmd.Wait()
}

// workers gives n client processes; they live until the bench ends.
func (b *bench) workers(n int) ([]*worker, error) {
	for len(b.pool) < n {
		w, err := startWorker()
		if err != nil {
			return nil, fmt.Errorf("a client process: %w", err)
		}
		b.pool = append(b.pool, w)
	}
	return b.pool[:n], nil
}

// together has each job done by a process of its own, all beginning at the same
// time. The time is from the first begin to the last end.
func (b *bench) together(jobs ...job) (time.Duration, []outcome, error) {
	ws, err := b.workers(len(jobs))
	if err != nil {
		return 0, nil, err
	}
	if err := b.ctx.Err(); err != nil {
		return 0, nil, err
	}
	for i, w := range ws {
		err = errors.Join(err, w.enc.Encode(jobs[i]))
	}
	for _, w := range ws {
		var ready outcome
		err = errors.Join(err, w.dec.Decode(&ready))
	}
	for _, w := range ws {
		err = errors.Join(err, w.enc.Encode("begin"))
	}
	if err != nil {
		return 0, nil, fmt.Errorf("a client process: %w", err)
	}
	outcomes := make([]outcome, len(ws))
	for i, w := range ws {
		if derr := w.dec.Decode(&outcomes[i]); derr != nil {
			err = errors.Join(err, derr)
		} else if outcomes[i].Err != "" {
			err = errors.Join(err, errors.New(outcomes[i].Err))
		}
	}
	if err != nil {
		return 0, nil, err
	}
	first := slices.MinFunc(outcomes, func(a, b outcome) int { return int(a.Start - b.Start) }).Start
	return time.Duration(lastEnd(outcomes) - first), outcomes, nil
}

// lastEnd is when the last of them ended, CLOCK_MONOTONIC.
func lastEnd(outcomes []outcome) int64 {
	return slices.MaxFunc(outcomes, func(a, b outcome) int { return int(a.End - b.End) }).End
}
