package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyWithin = 2 * time.Minute  // for the mount to say that it is ready
	stopWithin  = 30 * time.Second // for it to stop, its shutdown budget included
	restWithin  = 5 * time.Minute  // for the work after a start
)

// mounted is a state directory, a mount point, and the keeper that serves it
// while it runs.
type mounted struct {
	b     *bench
	base  string
	path  string // the mount point
	state string
	flags []string

	took   time.Duration // of the last start, until the mount said that it is ready
	keeper *exec.Cmd
	exited chan struct{}
	err    error // how the keeper ended
	log    lockedBuffer
}

// newMount makes the places of a mount. l1 is its --l1-size; flags are beside
// the defaults.
func (b *bench) newMount(name, l1 string, flags ...string) (*mounted, error) {
	base := filepath.Join(b.base, name)
	m := &mounted{b: b, base: base, path: filepath.Join(base, "mnt"), state: filepath.Join(base, "state")}
	m.flags = append([]string{"--l1-size", l1}, flags...)
	b.mounts = append(b.mounts, m)
	return m, errors.Join(os.MkdirAll(m.path, 0o755), os.MkdirAll(m.state, 0o700))
}

// mount is newMount, started.
func (b *bench) mount(name, l1 string, flags ...string) (*mounted, error) {
	m, err := b.newMount(name, l1, flags...)
	if err != nil {
		return nil, err
	}
	return m, m.start()
}

// start mounts and waits until the mount says that it is ready.
func (m *mounted) start() error {
	began := time.Now()
	defer func() { m.took = time.Since(began) }()
	args := append([]string{"mount", "--state", m.state}, m.flags...)
	m.keeper = exec.Command(m.b.o.binary, append(args, m.path)...)
	m.keeper.SysProcAttr = procAttr(syscall.SIGTERM)
	m.keeper.Stderr = &m.log
	out, err := m.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.keeper.Start(); err != nil {
		m.keeper = nil
		return err
	}
	ready := make(chan bool, 1)
	m.exited = make(chan struct{})
	go m.watch(out, ready)
	select {
	case ok := <-ready:
		if ok {
			return nil
		}
		<-m.exited
		return fmt.Errorf("ckptfs mount ended: %w\n%s", m.err, m.log.String())
	case <-time.After(readyWithin):
		return fmt.Errorf("ckptfs mount was not ready within %v\n%s", readyWithin, m.log.String())
	case <-m.b.ctx.Done():
		return m.b.ctx.Err()
	}
}

func (m *mounted) watch(out io.Reader, ready chan<- bool) {
	lines := bufio.NewReader(out)
	_, err := lines.ReadString('\n')
	ready <- err == nil
	_, _ = io.Copy(io.Discard, lines)
	m.err = m.keeper.Wait()
	close(m.exited)
}

// awaitRest waits until the daemon has done what it does beside its service after a
// start: taking up the pages that it finds in RAM, and comparing disk and index.
func (m *mounted) awaitRest() error {
	ctx, cancel := context.WithTimeout(m.b.ctx, restWithin)
	defer cancel()
	for {
		if s, err := m.status(); err != nil || s.AtRest && s.Reconciled {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the daemon is not at rest: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
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
		for isMounted(at) {
			if uerr := detach(at); uerr != nil {
				return errors.Join(err, fmt.Errorf("%s is left mounted: %w", at, uerr))
			}
		}
	}
	return errors.Join(err, os.RemoveAll(m.base))
}

func isMounted(at string) bool {
	table, _ := os.ReadFile("/proc/self/mountinfo")
	return bytes.Contains(table, []byte(" "+at+" "))
}

func detach(at string) error {
	err := syscall.Unmount(at, syscall.MNT_DETACH)
	if errors.Is(err, syscall.EPERM) {
		return exec.Command("fusermount3", "-u", "-z", at).Run()
	}
	return err
}

// status is what the rows need of .ckptfs/status.json.
type status struct {
	PID  int `json:"pid"`
	Mode struct {
		Passthrough bool   `json:"passthrough"`
		RAMTier     string `json:"ram_tier"`
		HugePages   bool   `json:"huge_pages"`
	} `json:"mode"`
	RAM struct {
		UsedBytes int64 `json:"used_bytes"`
	} `json:"ram"`
	// Disk is there if the mount has a disk tier.
	Disk *struct {
		UsedBytes int64 `json:"used_bytes"`
	} `json:"disk"`
	AtRest      bool             `json:"at_rest"`
	Reconciled  bool             `json:"reconciled"`
	Generations int              `json:"generations"`
	Counters    map[string]int64 `json:"counters"`
}

func (m *mounted) status() (s status, err error) {
	b, err := os.ReadFile(filepath.Join(m.path, ".ckptfs", "status.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// residentBytes is the daemon's resident memory.
func (m *mounted) residentBytes() (int64, error) {
	s, err := m.status()
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS", s.PID)
}

// procAttr keeps Ctrl-C to this program, which ends the others in order, and
// ends them if this program dies.
func procAttr(onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath}
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
