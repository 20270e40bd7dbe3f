package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	readyWithin = time.Minute
	stopWithin  = 2 * time.Minute
)

// mounted is a mount of its own, and the keeper that serves it.
type mounted struct {
	base, path, state string
	keeper            *exec.Cmd
	exited            chan struct{}
	err               error // how the keeper ended
	log               lockedBuffer
}

// mount mounts with the cell's RAM tier and policy, and a grace period that is
// longer than the run.
func (o *options) mount(c cell) (*mounted, error) {
	base, err := os.MkdirTemp(o.dir, "ckptfs-workload-")
	if err != nil {
		return nil, err
	}
	m := &mounted{base: base, path: filepath.Join(base, "mnt"), state: filepath.Join(base, "state"), exited: make(chan struct{})}
	if err := errors.Join(os.Mkdir(m.path, 0o755), os.Mkdir(m.state, 0o700)); err != nil {
		return nil, err
	}
	m.keeper = exec.Command(o.binary, "mount", "--state", m.state,
		"--l1-size", fmt.Sprintf("%dMiB", c.l1MiB), "--retention", c.policy, "--write-policy", o.writePolicy,
		"--supersede-grace", "24h", "--shutdown-budget", "1m", m.path)
	m.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	m.keeper.Stderr = &m.log
	out, err := m.keeper.StdoutPipe()
	if err == nil {
		err = m.keeper.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(base))
	}
	ready := make(chan bool, 1)
	go m.watch(out, ready)
	select {
	case ok := <-ready:
		if ok {
			return m, nil
		}
		err = fmt.Errorf("ckptfs mount has ended\n%s", m.log.String())
	case <-time.After(readyWithin):
		err = fmt.Errorf("ckptfs mount was not ready within %v\n%s", readyWithin, m.log.String())
	}
	return nil, errors.Join(err, m.cleanUp())
}

func (m *mounted) watch(out io.Reader, ready chan<- bool) {
	lines := bufio.NewReader(out)
	_, err := lines.ReadString('\n')
	ready <- err == nil
	_, _ = io.Copy(io.Discard, lines)
	m.err = m.keeper.Wait()
	close(m.exited)
}

// stop asks the keeper to unmount and end.
func (m *mounted) stop() error {
	if m.keeper == nil {
		return nil
	}
	if err := m.keeper.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-m.exited:
	case <-time.After(stopWithin):
		return fmt.Errorf("ckptfs mount did not end within %v\n%s", stopWithin, m.log.String())
	}
	m.keeper = nil
	if m.err != nil {
		return fmt.Errorf("ckptfs mount: %w\n%s", m.err, m.log.String())
	}
	return nil
}

// cleanUp stops the mount, takes away what is left mounted, and removes its
// directory.
func (m *mounted) cleanUp() error {
	err := m.stop()
	for _, at := range []string{m.path, filepath.Join(m.state, "ram")} {
		table, _ := os.ReadFile("/proc/self/mountinfo")
		if !bytes.Contains(table, []byte(" "+at+" ")) {
			continue
		}
		if uerr := syscall.Unmount(at, syscall.MNT_DETACH); uerr != nil {
			return errors.Join(err, fmt.Errorf("%s is left mounted: %w", at, uerr))
		}
	}
	return errors.Join(err, os.RemoveAll(m.base))
}

// status is what is needed of .ckptfs/status.json.
type status struct {
	AtRest   bool             `json:"at_rest"`
	Counters map[string]int64 `json:"counters"`
}

func (m *mounted) status() (s status, err error) {
	b, err := os.ReadFile(filepath.Join(m.path, ".ckptfs", "status.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

func (m *mounted) note(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

var (
	flushLine = regexp.MustCompile(`msg="RAM is written to disk".*`)
	flushSaid = regexp.MustCompile(`\b(bytes|bytes_left)=(\d+)`)
)

// flushedBytes is what the daemon says to have written when it was stopped.
func flushedBytes(log string) (n int64, err error) {
	line := flushLine.FindString(log)
	said := map[string]int64{}
	for _, match := range flushSaid.FindAllStringSubmatch(line, -1) {
		said[match[1]], err = strconv.ParseInt(match[2], 10, 64)
		if err != nil {
			return 0, err
		}
	}
	if line == "" || said["bytes_left"] > 0 {
		return 0, fmt.Errorf("the daemon did not write everything at its stop: %q", line)
	}
	return said["bytes"], nil
}

// lockedBuffer collects a log while others read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
