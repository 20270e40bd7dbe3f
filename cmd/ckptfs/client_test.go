package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// The client is a process of its own: one that served the mount itself could deadlock with it.

// clientReport is what a client has seen when it ends.
type clientReport struct {
	Cycles  int           // open, read, fstat, close
	Longest time.Duration // the longest of them
	Errors  []string
}

// load is a running client.
type load struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	out   bytes.Buffer
}

// startLoad starts a client on the mount and returns once it is at work.
func (m *mounted) startLoad() *load {
	m.t.Helper()
	self, err := os.Executable()
	must(m.t, err)
	l := &load{t: m.t, cmd: exec.Command(self, m.point)}
	l.cmd.Env = append(os.Environ(), roleEnv+"="+asClient)
	l.cmd.Stdout, l.cmd.Stderr = &l.out, os.Stderr
	l.stdin, err = l.cmd.StdinPipe()
	must(m.t, err)
	must(m.t, l.cmd.Start())
	return l
}

// stop ends the client and returns what it has seen.
func (l *load) stop() clientReport {
	l.t.Helper()
	l.stdin.Close()
	must(l.t, l.cmd.Wait())
	var r clientReport
	must(l.t, json.Unmarshal(l.out.Bytes(), &r))
	return r
}

// runClient reads the toy's files from three threads, and one from a descriptor that stays open, until stdin ends.
func runClient(dir string) int {
	var mu sync.Mutex
	var report clientReport
	stop := make(chan struct{})
	cycle := func(f func() error) {
		for {
			select {
			case <-stop:
				return
			default:
			}
			began := time.Now()
			err := f()
			took := time.Since(began)
			mu.Lock()
			report.Cycles++
			report.Longest = max(report.Longest, took)
			if err != nil && len(report.Errors) < 20 {
				report.Errors = append(report.Errors, err.Error())
			}
			mu.Unlock()
		}
	}
	var all sync.WaitGroup
	for _, name := range []string{"data", "data", "slow"} {
		all.Go(func() { cycle(func() error { return readWhole(filepath.Join(dir, name)) }) })
	}
	held, err := os.Open(filepath.Join(dir, "data"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer held.Close()
	all.Go(func() { cycle(func() error { return compare(held) }) })
	io.Copy(io.Discard, os.Stdin)
	close(stop)
	all.Wait()
	json.NewEncoder(os.Stdout).Encode(report)
	return 0
}

func readWhole(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = compare(f)
	if _, serr := f.Stat(); err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// compare reads the whole file and checks every byte.
func compare(f *os.File) error {
	got, want := make([]byte, toyBytes), make([]byte, toyBytes)
	if _, err := f.ReadAt(got, 0); err != nil {
		return err
	}
	toyFill(want, 0)
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s: wrong bytes", f.Name())
	}
	return nil
}
