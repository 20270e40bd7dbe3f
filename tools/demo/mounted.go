package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// readyWithin is how long the mount may take to say that it is ready.
	readyWithin = 30 * time.Second
	// stopBudget is what it is given to write its RAM to disk at the end.
	stopBudget = 60 * time.Second
	// stopWithin is how long it may take to stop in all.
	stopWithin = stopBudget + 10*time.Second
)

// mounted is a temporary directory with a mount point, the state and the disk
// tier beside it, and the keeper that serves them. It can be started again.
type mounted struct {
	base   string
	path   string // the mount point
	disk   string // the disk tier
	binary string
	args   []string
	keeper *keeper // the last one
}

// keeper is a process of `ckptfs mount`.
type keeper struct {
	command *exec.Cmd
	ready   chan bool     // gets true when it says so
	exited  chan struct{} // closed when it is gone, and the daemon with it
	err     error         // how it ended
	log     lockedBuffer
}

// newMounted makes the directory. What it returns is to be cleaned up.
func newMounted(o options, flags ...string) (*mounted, error) {
	base, err := os.MkdirTemp(o.tempDir, "ckptfs-demo-")
	if err != nil {
		return nil, err
	}
	m := &mounted{base: base, binary: o.binary}
	if m.base, err = filepath.EvalSymlinks(base); err == nil { // the mount table has no links in it
		m.base, err = filepath.Abs(m.base)
	}
	m.path, m.disk = filepath.Join(m.base, "mnt"), filepath.Join(m.base, "disk")
	if err == nil {
		err = os.Mkdir(m.path, 0o755)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(base))
	}
	m.args = slices.Concat([]string{"mount", "--state", m.state(), "--l2-dir", m.disk, "--shutdown-budget", stopBudget.String()}, flags, []string{m.path})
	return m, nil
}

func (m *mounted) state() string { return filepath.Join(m.base, "state") }

// start mounts and waits until the mount is ready.
func (m *mounted) start(ctx context.Context) error {
	k := &keeper{command: exec.Command(m.binary, m.args...), ready: make(chan bool, 1), exited: make(chan struct{})}
	k.command.SysProcAttr = procAttr(syscall.SIGTERM)
	k.command.Stderr = &k.log
	out, err := k.command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := k.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w; `make build` makes it", m.binary, err)
	}
	m.keeper = k
	go k.watch(out)
	return k.awaitReady(ctx)
}

// watch reads the line that says ready, and then waits for the keeper's end.
func (k *keeper) watch(out io.Reader) {
	lines := bufio.NewReader(out)
	_, err := lines.ReadString('\n')
	k.ready <- err == nil
	_, _ = io.Copy(io.Discard, lines)
	k.err = k.command.Wait()
	close(k.exited)
}

func (k *keeper) awaitReady(ctx context.Context) error {
	select {
	case ok := <-k.ready:
		if ok {
			return nil
		}
		<-k.exited
		return fmt.Errorf("ckptfs mount ended: %w\n%s", k.err, k.log.String())
	case <-time.After(readyWithin):
		return fmt.Errorf("ckptfs mount was not ready within %v\n%s", readyWithin, k.log.String())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitExit waits until the keeper is gone.
func (k *keeper) awaitExit(ctx context.Context, within time.Duration) error {
	select {
	case <-k.exited:
		return nil
	case <-time.After(within):
		return fmt.Errorf("ckptfs mount did not end within %v\n%s", within, k.log.String())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop asks the keeper to unmount and end, which must succeed and leave nothing
// mounted.
func (m *mounted) stop(ctx context.Context) error {
	if err := m.keeper.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := m.keeper.awaitExit(ctx, stopWithin); err != nil {
		return err
	}
	if m.keeper.err != nil {
		return fmt.Errorf("ckptfs mount: %w\n%s", m.keeper.err, m.keeper.log.String())
	}
	left, err := mountsBelow(m.base)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("still mounted after the end: %q", left)
	}
	return err
}

// kill sends SIGKILL to the keeper and to the daemon, and waits until both are
// gone and the mount is dead.
func (m *mounted) kill(ctx context.Context) error {
	s, err := m.status()
	if err != nil {
		return err
	}
	if s.KeeperPID != m.keeper.command.Process.Pid {
		return fmt.Errorf("status.json says that the keeper is %d, it is %d", s.KeeperPID, m.keeper.command.Process.Pid)
	}
	daemon, err := os.FindProcess(s.PID)
	if err != nil {
		return err
	}
	errKeeper, errDaemon := m.keeper.command.Process.Kill(), daemon.Kill()
	if errors.Is(errDaemon, os.ErrProcessDone) { // it does not outlive its keeper for long
		errDaemon = nil
	}
	if err := errors.Join(errKeeper, errDaemon); err != nil {
		return err
	}
	if err := m.keeper.awaitExit(ctx, killedWithin); err != nil {
		return err
	}
	if _, err := os.ReadDir(m.path); !errors.Is(err, syscall.ENOTCONN) {
		return fmt.Errorf("the mount without processes says %v instead of %v", err, syscall.ENOTCONN)
	}
	return nil
}
