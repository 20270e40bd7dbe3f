package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleEnv makes the test binary be something else: ckptfs itself (with the toy filesystem), or a client of a mount.
const roleEnv = "CKPTFS_TEST_AS"

const (
	asCkptfs = "ckptfs"
	asClient = "client"
)

// patience is how long a test waits for something that should happen soon.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case asCkptfs:
		io := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
		os.Exit(run(context.Background(), toyCommands(), os.Args[1:], io))
	case asClient:
		os.Exit(runClient(os.Args[1]))
	}
	os.Exit(m.Run())
}

// toyCommands is the command table with the toy in place of the real filesystem.
func toyCommands() []command {
	table := commands()
	for i := range table {
		if table[i].name == daemonVerb {
			table[i] = daemonCommandEntry(newToyFS)
		}
	}
	return table
}

// requireFUSE skips the test where FUSE cannot be mounted, and says why. With CKPTFS_REQUIRE_FUSE=1 it fails.
func requireFUSE(t *testing.T) {
	t.Helper()
	err := tryFUSE(t.TempDir())
	if err == nil {
		return
	}
	if os.Getenv("CKPTFS_REQUIRE_FUSE") == "1" {
		t.Fatalf("FUSE is required and cannot be mounted: %v", err)
	}
	t.Skipf("FUSE cannot be mounted: %v", err)
}

// tryFUSE mounts with nothing of ckptfs, as root; another user has only fusermount3.
func tryFUSE(dir string) error {
	if os.Geteuid() != 0 {
		_, err := exec.LookPath("fusermount3")
		return err
	}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer dev.Close()
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", dev.Fd(), os.Getuid(), os.Getgid())
	if err := unix.Mount("try", dir, "fuse", unix.MS_NODEV|unix.MS_NOSUID, data); err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// mounted is a ckptfs that serves the toy, started from a copy of the test binary.
type mounted struct {
	t      *testing.T
	binary string
	state  string
	point  string
	flags  []string
	log    string // path
	env    []string

	cmd  *exec.Cmd
	line string // what it printed when it was ready
	done chan error
}

// newMounted prepares a mount; start starts it. When the test ends nothing of it may be left.
func newMounted(t *testing.T, flags ...string) *mounted {
	t.Helper()
	requireFUSE(t)
	dir := t.TempDir()
	m := &mounted{t: t, binary: filepath.Join(dir, "bin"), state: filepath.Join(dir, "state"), point: filepath.Join(dir, "mnt"),
		log: filepath.Join(t.TempDir(), "log"), flags: append([]string{"--l1-size=8MiB"}, flags...)}
	must(t, os.Mkdir(m.state, 0o700))
	must(t, os.Mkdir(m.point, 0o755))
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, m.binary))
	t.Cleanup(m.cleanup)
	return m
}

func (m *mounted) args() []string {
	return append(append([]string{"mount", "--state", m.state, "--log-level=debug"}, m.flags...), m.point)
}

// launch starts the process without waiting for it to be ready. Its first line comes over the channel, "" if none.
func (m *mounted) launch() <-chan string {
	m.t.Helper()
	logFile, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(m.t, err)
	defer logFile.Close()
	m.cmd = exec.Command(m.binary, m.args()...)
	m.cmd.Env = append(append(os.Environ(), roleEnv+"="+asCkptfs), m.env...)
	m.cmd.Stderr = logFile
	out, err := m.cmd.StdoutPipe()
	must(m.t, err)
	must(m.t, m.cmd.Start())
	first, done, cmd := make(chan string, 1), make(chan error, 1), m.cmd
	m.done = done
	go func() {
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n')
		first <- strings.TrimSuffix(line, "\n")
		io.Copy(io.Discard, r)
		done <- cmd.Wait()
	}()
	return first
}

// start starts ckptfs and waits until it is ready.
func (m *mounted) start() *mounted {
	m.t.Helper()
	select {
	case m.line = <-m.launch():
		if m.line == "" {
			m.t.Fatalf("ckptfs was not ready, it ended: %v; log:\n%s", m.wait(), m.logText())
		}
	case <-time.After(patience):
		m.t.Fatalf("ckptfs is not ready after %v; log:\n%s", patience, m.logText())
	}
	return m
}

// wait waits for the process to end and returns its exit code; -1 if a signal ended it.
func (m *mounted) wait() int {
	m.t.Helper()
	select {
	case err := <-m.done:
		m.cmd = nil
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		must(m.t, err)
		return 0
	case <-time.After(patience):
		m.t.Fatalf("ckptfs has not ended after %v; log:\n%s", patience, m.logText())
		return -1
	}
}

// stop is SIGTERM; it returns the exit code.
func (m *mounted) stop() int {
	m.t.Helper()
	must(m.t, m.cmd.Process.Signal(syscall.SIGTERM))
	return m.wait()
}

func (m *mounted) logText() string {
	b, _ := os.ReadFile(m.log)
	return string(b)
}

func (m *mounted) wantLog(text string) {
	m.t.Helper()
	if log := m.logText(); !strings.Contains(log, text) {
		m.t.Errorf("the log does not say %q:\n%s", text, log)
	}
}

// mode sets what goes wrong in the daemons that start from now on.
func (m *mounted) mode(mode string) {
	m.t.Helper()
	must(m.t, os.WriteFile(filepath.Join(m.state, toyModeFile), []byte(mode), 0o644))
}

// there reports whether a daemon has left the toy's file of this name.
func (m *mounted) there(name string) bool {
	_, err := os.Stat(filepath.Join(m.state, name))
	return err == nil
}

// status reads who serves. Two reads of the text can come from two daemons, so it is read until it makes sense.
func (m *mounted) status() (s toyStatusDoc) {
	m.t.Helper()
	for range 5 {
		b, err := os.ReadFile(filepath.Join(m.point, ".ckptfs", "status.json"))
		if err != nil {
			m.t.Fatalf("%v; log:\n%s", err, m.logText())
		}
		s = toyStatusDoc{}
		if json.Unmarshal(b, &s) == nil {
			return s
		}
	}
	m.t.Fatalf("the status makes no sense")
	return s
}

// awaitDaemon waits until another process than pid answers.
func (m *mounted) awaitDaemon(pid int) toyStatusDoc {
	m.t.Helper()
	var s toyStatusDoc
	eventually(m.t, "a new daemon serves", func() bool {
		s = m.status()
		return s.PID != pid
	})
	return s
}

func (m *mounted) cleanup() {
	if m.cmd != nil {
		m.cmd.Process.Kill()
		m.wait()
	}
	os.RemoveAll(sharedRAMDir(m.state))
	table, err := mountTable()
	must(m.t, err)
	for i := len(table) - 1; i >= 0; i-- {
		if isBelow(table[i].point, filepath.Dir(m.point)) {
			detach(table[i].point)
		}
	}
}

// mounts are the mounts at the mount point and on the RAM tier.
func (m *mounted) mounts() (fuse, ram int) {
	m.t.Helper()
	table, err := mountTable()
	must(m.t, err)
	return len(mountsAt(table, m.point)), len(mountsAt(table, filepath.Join(m.state, ramDirName)))
}

func (m *mounted) wantMounts(fuse, ram int) {
	m.t.Helper()
	if f, r := m.mounts(); f != fuse || r != ram {
		m.t.Errorf("%d mounts at the mount point and %d on the RAM tier, want %d and %d", f, r, fuse, ram)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
	}
}

// processGone reports whether no process has this pid, or only a dead one nobody has waited for.
func processGone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
