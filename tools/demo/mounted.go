package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// readyWithin is how long the mount may take to say that it is ready.
	readyWithin = 30 * time.Second
	// stopWithin is how long it may take to stop, its shutdown budget included.
	stopWithin = 20 * time.Second
)

// mounted is a temporary directory with a mount point, a state directory beside
// it, and the keeper that serves them.
type mounted struct {
	base   string
	path   string // the mount point
	keeper *exec.Cmd
	exited chan struct{} // closed when the keeper is gone
	err    error         // how it ended
	log    lockedBuffer
}

// startMount mounts and waits until the mount is ready. What it returns is to
// be cleaned up, also together with an error.
func startMount(ctx context.Context, o options) (*mounted, error) {
	base, err := os.MkdirTemp(o.tempDir, "ckptfs-demo-")
	if err != nil {
		return nil, err
	}
	m := &mounted{base: base, path: filepath.Join(base, "mnt"), exited: make(chan struct{})}
	if err := os.Mkdir(m.path, 0o755); err != nil {
		return m, err
	}
	m.keeper = exec.Command(o.binary, "mount", "--state", filepath.Join(base, "state"), "--l1-size", o.l1Size, m.path)
	m.keeper.SysProcAttr = procAttr(syscall.SIGTERM)
	m.keeper.Stderr = &m.log
	out, err := m.keeper.StdoutPipe()
	if err != nil {
		return m, err
	}
	if err := m.keeper.Start(); err != nil {
		m.keeper = nil
		return m, fmt.Errorf("start %s: %w; `make build` makes it", o.binary, err)
	}
	ready := make(chan bool, 1)
	go m.watch(out, ready)
	return m, m.awaitReady(ctx, ready)
}

// watch reads the line that says ready, and then waits for the keeper's end.
func (m *mounted) watch(out io.Reader, ready chan<- bool) {
	lines := bufio.NewReader(out)
	_, err := lines.ReadString('\n')
	ready <- err == nil
	_, _ = io.Copy(io.Discard, lines)
	m.err = m.keeper.Wait()
	close(m.exited)
}

func (m *mounted) awaitReady(ctx context.Context, ready <-chan bool) error {
	select {
	case ok := <-ready:
		if ok {
			return nil
		}
		<-m.exited
		return fmt.Errorf("ckptfs mount ended: %w\n%s", m.err, m.log.String())
	case <-time.After(readyWithin):
		return fmt.Errorf("ckptfs mount was not ready within %v\n%s", readyWithin, m.log.String())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop asks the keeper to unmount and end.
func (m *mounted) stop() error {
	if err := m.keeper.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-m.exited:
	case <-time.After(stopWithin):
		return fmt.Errorf("ckptfs mount did not end within %v after SIGTERM\n%s", stopWithin, m.log.String())
	}
	if m.err != nil {
		return fmt.Errorf("ckptfs mount: %w\n%s", m.err, m.log.String())
	}
	return nil
}

// cleanUp ends the keeper if it runs, detaches what is still mounted and
// removes the directory.
func (m *mounted) cleanUp() error {
	var err error
	if m.keeper != nil && m.keeper.ProcessState == nil {
		if err = m.stop(); err != nil {
			_ = m.keeper.Process.Kill()
		}
	}
	left, _ := mountsBelow(m.base)
	for _, at := range left {
		if err == nil && m.err == nil { // a keeper that failed keeps its RAM tier for the next start
			err = fmt.Errorf("%s was still mounted after the end", at)
		}
		err = errors.Join(err, detach(at))
	}
	if left, listErr := mountsBelow(m.base); listErr != nil || len(left) > 0 {
		return errors.Join(err, listErr, fmt.Errorf("%s is left behind, with mounts in it", m.base))
	}
	return errors.Join(err, os.RemoveAll(m.base))
}

// mountsBelow lists the mount points below dir, the deepest first.
func mountsBelow(dir string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	slices.Reverse(found)
	return found, nil
}

func detach(at string) error {
	err := syscall.Unmount(at, syscall.MNT_DETACH)
	if err == syscall.EPERM {
		return exec.Command("fusermount3", "-u", "-z", at).Run()
	}
	return err
}

// procAttr puts a process into a group of its own, so that Ctrl-C reaches this
// program alone, which ends the others in order, and sends it a signal if this
// program dies.
func procAttr(onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath}
}

// lockedBuffer collects the keeper's log while others read it.
type lockedBuffer struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Buffer.String()
}
