package main

import (
	"fmt"
	"runtime"
	"sync"
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
	case "spin":
		spin(j.Threads, stop)
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
// opens alone.
func (c *clientWork) opens(j job, stop <-chan struct{}, o *outcome) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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
	}
	return nil
}

// spin keeps so many threads busy with nothing.
func spin(threads int, stop <-chan struct{}) {
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			for !stopped(stop) {
				for range 1 << 14 {
				}
			}
		})
	}
	wg.Wait()
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
