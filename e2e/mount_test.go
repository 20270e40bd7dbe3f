package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mode is one of the two ways in which ckptfs moves page bytes. Both must give
// the same answers, so the tests run in both.
type mode struct {
	name  string
	flags []string
}

var modes = []mode{
	{name: "passthrough"},
	{name: "plain", flags: []string{"--passthrough=off", "--ram-tier=shm"}},
}

// inModes runs f as a subtest in each mode.
func inModes(t *testing.T, f func(t *testing.T, md mode)) {
	requireFUSE(t)
	for _, md := range modes {
		t.Run(md.name, func(t *testing.T) { f(t, md) })
	}
}

// mount is one running `ckptfs mount` with its directories.
type mount struct {
	t       *testing.T
	dir     string // holds the two below and the log
	path    string // the mount point
	state   string
	binary  string
	flags   []string
	within  []string // a command that runs ckptfs, with arguments: a container, say
	logPath string
	ready   string // the line that was printed when the mount was ready
	cmd     *exec.Cmd
	stdout  *os.File
	warned  []string // what the log may warn of
	pressed uint64   // generations that press has published
}

// mountEnv marks the processes of a mount, so that one that is left behind is found.
const mountEnv = "CKPTFS_E2E_MOUNT"

var mountCount atomic.Int64

// newMount makes the directories of a mount without starting it. The test
// fails at its end if anything of it is left: a mount, a process, an open file
// of this program, a warning in the log.
func newMount(t *testing.T, md mode, flags ...string) *mount {
	t.Helper()
	dir := filepath.Join(suite.dir, strconv.FormatInt(mountCount.Add(1), 10))
	m := &mount{
		t: t, dir: dir, path: filepath.Join(dir, "mnt"), state: filepath.Join(dir, "state"),
		binary: suite.binary, flags: append(append([]string{}, md.flags...), flags...),
		logPath: filepath.Join(dir, "log"),
	}
	for _, d := range []string{dir, m.path, m.state} {
		must(t, os.Mkdir(d, 0o755))
	}
	t.Cleanup(m.cleanup)
	return m
}

// mountFS starts ckptfs and waits until it is ready.
func mountFS(t *testing.T, md mode, flags ...string) *mount {
	t.Helper()
	m := newMount(t, md, flags...)
	m.start()
	return m
}

// expectWarn lets the log of this mount warn with lines that contain text.
func (m *mount) expectWarn(text string) { m.warned = append(m.warned, text) }

func (m *mount) command() *exec.Cmd {
	args := []string{"mount", "--state", m.state}
	if !strings.Contains(strings.Join(m.flags, " "), "--l1-size") {
		args = append(args, "--l1-size", "512MiB")
	}
	if !strings.Contains(strings.Join(m.flags, " "), "--shutdown-budget") {
		// A busy machine may need longer than the default to write everything down; only some tests are about that.
		args = append(args, "--shutdown-budget", "50s")
	}
	args = append(append(append([]string{}, m.within...), m.binary), append(append(args, m.flags...), m.path)...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), mountEnv+"="+m.dir)
	// A test program that dies takes its mounts with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd
}

func (m *mount) start() {
	m.t.Helper()
	r, w, err := os.Pipe()
	must(m.t, err)
	defer w.Close()
	logFile, err := os.OpenFile(m.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(m.t, err)
	defer logFile.Close()
	m.cmd, m.stdout = m.command(), r
	m.cmd.Stdout, m.cmd.Stderr = w, logFile
	must(m.t, m.cmd.Start())
	w.Close()
	must(m.t, r.SetReadDeadline(time.Now().Add(patience)))
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		m.t.Fatalf("ckptfs mount was not ready: %v; log:\n%s", err, m.log())
	}
	m.ready = strings.TrimSpace(line)
}

func (m *mount) log() string {
	b, err := os.ReadFile(m.logPath)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

type status struct {
	PID       int `json:"pid"`
	KeeperPID int `json:"keeper_pid"`
}

func (m *mount) statusPath() string { return filepath.Join(m.path, ".ckptfs", "status.json") }

func (m *mount) status() (status, error) {
	var s status
	b, err := os.ReadFile(m.statusPath())
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%w in %q", err, b)
	}
	if s.PID <= 1 || s.KeeperPID <= 1 {
		return s, fmt.Errorf("status.json has no pid or no keeper_pid: %s", b)
	}
	return s, nil
}

// killDaemon kills the serving process with SIGKILL and returns its pid.
func (m *mount) killDaemon() int {
	m.t.Helper()
	s, err := m.status()
	must(m.t, err)
	if !m.owns(s.PID) {
		m.t.Fatalf("status.json names process %d, which is none of this mount", s.PID)
	}
	m.expectKilled()
	must(m.t, syscall.Kill(s.PID, syscall.SIGKILL))
	return s.PID
}

// killKeeper kills the keeper with SIGKILL and waits until the daemon, which
// must go with it, is gone too.
func (m *mount) killKeeper() {
	m.t.Helper()
	m.expectKilled()
	must(m.t, m.cmd.Process.Kill())
	m.reap()
	eventually(m.t, "the daemon goes when its keeper is killed", func() error {
		if p := m.processes(); len(p) > 0 {
			return fmt.Errorf("processes %v are left", p)
		}
		return nil
	})
}

func (m *mount) reap() error {
	err := m.cmd.Wait()
	m.stdout.Close()
	m.cmd = nil
	return err
}

// stop ends the mount as an operator does, and checks that nothing is left.
func (m *mount) stop() {
	m.t.Helper()
	if open := openBelow(m.path); len(open) > 0 && !m.t.Failed() {
		m.t.Errorf("the test left files open: %s", strings.Join(open, ", "))
	}
	must(m.t, m.cmd.Process.Signal(syscall.SIGTERM))
	done := make(chan error, 1)
	go func() { done <- m.reap() }()
	select {
	case err := <-done:
		if err != nil {
			m.t.Errorf("ckptfs mount ended with %v after SIGTERM; log:\n%s", err, tail(m.log()))
		}
	case <-time.After(patience):
		m.giveUp()
		<-done
	}
	if left := m.mounts(); len(left) > 0 {
		m.t.Errorf("still mounted after SIGTERM: %s", strings.Join(left, ", "))
	}
	eventually(m.t, "no process is left", func() error {
		if p := m.processes(); len(p) > 0 {
			return fmt.Errorf("processes %v are left", p)
		}
		return nil
	})
}

// giveUp ends a mount that does not stop; what its processes were doing goes to the log.
func (m *mount) giveUp() {
	for _, pid := range m.processes() {
		syscall.Kill(pid, syscall.SIGQUIT)
	}
	waitFor(5*time.Second, func() bool { return len(m.processes()) == 0 })
	for _, pid := range m.processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	abortMounts()
	m.t.Errorf("ckptfs mount did not stop within %v of SIGTERM; log:\n%s", patience, tail(m.log()))
}

func (m *mount) cleanup() {
	if m.cmd != nil {
		m.stop()
	}
	for _, pid := range m.processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, p := range m.mounts() {
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			m.t.Errorf("unmounting %s: %v", p, err)
		}
	}
	if ram := m.sharedRAM(); ram != "" {
		m.t.Errorf("%s is left in memory", ram)
		os.RemoveAll(ram)
	}
	m.checkLog()
}

// sharedRAM returns the directory of the mount in /dev/shm, if it is there. Its
// name is not of the contract; only its removal rests on it.
func (m *mount) sharedRAM() string {
	sum := sha256.Sum256([]byte(m.state))
	dir := fmt.Sprintf("/dev/shm/ckptfs-%x", sum[:8])
	if _, err := os.Lstat(dir); err != nil {
		return ""
	}
	return dir
}

// checkLog fails the test for every warning that it did not expect.
func (m *mount) checkLog() {
	if _, err := os.Stat(m.logPath); err != nil {
		return // never started
	}
lines:
	for _, line := range strings.Split(m.log(), "\n") {
		if !isWarning(line) {
			continue
		}
		for _, w := range m.warned {
			if strings.Contains(line, w) {
				continue lines
			}
		}
		m.t.Errorf("in the log of the mount: %s", line)
	}
}

func isWarning(line string) bool {
	for _, s := range []string{"level=WARN", "level=ERROR", `"level":"WARN"`, `"level":"ERROR"`,
		"DATA RACE", "panic:", "fatal error:"} {
		if strings.Contains(line, s) {
			return true
		}
	}
	return false
}

// expectKilled lets the log tell of what SIGKILL leaves behind.
func (m *mount) expectKilled() {
	for _, s := range []string{"dead mount", "discard", "adopt", "killed", "died", "daemon"} {
		m.expectWarn(s)
	}
}
