package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pause is how long a client that measures opens rests after each, so that it is
// the load beside it that keeps the machine busy, not itself.
const pause = 200 * time.Microsecond

// doUntil does a job again and again until stop is closed.
func (c *clientWork) doUntil(j job, stop <-chan struct{}) outcome {
	o := outcome{Start: monotonic()}
	var err error
	switch j.Op {
	case "open":
		err = c.opens(j, stop, &o)
	default:
		err = fmt.Errorf("no operation %q that can be stopped", j.Op)
	}
	o.End = monotonic()
	if err != nil {
		o.Err = err.Error()
	}
	return o
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// opens opens and closes one file after the other; the times are those of the
// opens alone. In turn it asks another process and waits for the answer, as an open
// does, but through pipes.
func (c *clientWork) opens(j job, stop <-chan struct{}, o *outcome) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e, err := startEcho()
	if err != nil {
		return err
	}
	defer e.end()
	rest := unix.NsecToTimespec(pause.Nanoseconds())
	for i := 0; !stopped(stop); i++ {
		began := monotonic()
		fd, err := open(j.Paths[i%len(j.Paths)], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		o.Each = append(o.Each, monotonic()-began)
		if err := unix.Close(fd); err != nil {
			return err
		}
		_ = unix.Nanosleep(&rest, nil)
		began = monotonic()
		if err := e.ask(); err != nil {
			return err
		}
		o.Echo = append(o.Echo, monotonic()-began)
		_ = unix.Nanosleep(&rest, nil)
	}
	return nil
}

// echo is a process that answers each byte with itself: cat.
type echo struct {
	cmd      *exec.Cmd
	to, from *os.File
}

func startEcho() (*echo, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), to.Close())
	}
	e := &echo{cmd: exec.Command("cat"), to: to, from: from}
	to.Fd() // from now on its calls block, as those of an open do
	from.Fd()
	e.cmd.Stdin, e.cmd.Stdout = in, out
	err = e.cmd.Start()
	if err := errors.Join(err, in.Close(), out.Close()); err != nil {
		return nil, errors.Join(err, to.Close(), from.Close())
	}
	return e, e.ask()
}

func (e *echo) ask() error {
	b := []byte{0}
	if _, err := e.to.Write(b); err != nil {
		return err
	}
	_, err := e.from.Read(b)
	return err
}

func (e *echo) end() {
	e.to.Close()
	_ = e.cmd.Wait()
	e.from.Close()
}

// parallel has threads do their parts of a job at the same time.
func parallel(j job, op func(string, job) error) error {
	errs := make(chan error, j.Threads)
	for t := range j.Threads {
		go func() {
			for range max(j.Rounds, 1) {
				for i := t; i < len(j.Paths); i += j.Threads {
					if err := op(j.Paths[i], j); err != nil {
						errs <- err
						return
					}
				}
			}
			errs <- nil
		}()
	}
	var failed error
	for range j.Threads {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}
