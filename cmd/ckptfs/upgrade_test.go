package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

func discardLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// ownBinary gives the mount a binary of its own, with so many bytes behind it, by which the toy tells versions apart.
func (m *mounted) ownBinary(padding int) {
	m.t.Helper()
	self, err := os.Executable()
	must(m.t, err)
	b, err := os.ReadFile(self)
	must(m.t, err)
	m.replaceBinary(append(b, make([]byte, padding)...))
}

// replaceBinary installs a file as package managers do: complete under another name, then renamed.
func (m *mounted) replaceBinary(content []byte) {
	m.t.Helper()
	must(m.t, os.WriteFile(m.binary+".new", content, 0o755))
	must(m.t, os.Rename(m.binary+".new", m.binary))
}

// upgrade runs 'ckptfs upgrade' in a process of its own.
func (m *mounted) upgrade(args ...string) (code int, out string) {
	m.t.Helper()
	self, err := os.Executable()
	must(m.t, err)
	cmd := exec.Command(self, append(append([]string{"upgrade"}, args...), m.point)...)
	cmd.Env = append(os.Environ(), roleEnv+"="+asCkptfs)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

func TestUpgrade(t *testing.T) {
	m := newMounted(t)
	m.ownBinary(0)
	m.start()
	l := m.startLoad()
	for i := range 3 {
		before := m.status()
		m.ownBinary(100 * (i + 1))
		code, out := m.upgrade()
		if code != exitOK || !strings.Contains(out, "upgraded "+m.point) {
			t.Fatalf("exit code %d, %q; log:\n%s", code, out, m.logText())
		}
		after := m.status()
		if after.PID == before.PID || after.Version == before.Version || after.KeeperPID != before.KeeperPID || after.Fresh {
			t.Errorf("status before %+v, after %+v", before, after)
		}
	}
	if r := l.stop(); len(r.Errors) > 0 {
		t.Errorf("clients saw errors: %q", r.Errors)
	}
	if s := m.status(); s.Restarts != 0 {
		t.Errorf("upgrades count as restarts: %+v", s)
	}
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
}

func TestUpgradeThatFailsIsTakenBack(t *testing.T) {
	for what, content := range map[string]string{"a script that fails": "#!/bin/sh\nexit 3\n", "no program": "hello\n"} {
		t.Run(what, func(t *testing.T) {
			m := newMounted(t)
			m.ownBinary(0)
			m.start()
			before := m.status()
			m.replaceBinary([]byte(content))
			if code, out := m.upgrade(); code != exitUpgrade || !strings.Contains(out, "did not come up") {
				t.Errorf("exit code %d, %q; log:\n%s", code, out, m.logText())
			}
			after := m.status()
			if after.PID == before.PID || after.Version != before.Version || after.UpgradeError == "" || after.Fresh {
				t.Errorf("status before %+v, after %+v", before, after)
			}
			// It is still restarted as before, from a file that is no more.
			must(t, syscall.Kill(after.PID, syscall.SIGKILL))
			m.awaitDaemon(after.PID)
		})
	}
}

// TestCrashIsNoUpgrade: a daemon that dies comes back in the version that ran, not the one on disk.
func TestCrashIsNoUpgrade(t *testing.T) {
	m := newMounted(t)
	m.ownBinary(0)
	m.start()
	before := m.status()
	m.ownBinary(100)
	must(t, syscall.Kill(before.PID, syscall.SIGKILL))
	if after := m.awaitDaemon(before.PID); after.Version != before.Version {
		t.Errorf("status before %+v, after %+v", before, after)
	}
}

// TestUpgradeOfADaemonThatKeepsDying: what is to help may come while none is running.
func TestUpgradeOfADaemonThatKeepsDying(t *testing.T) {
	m := newMounted(t).start()
	go os.Open(filepath.Join(m.point, "poison")) // every daemon that is asked this dies
	eventually(t, "none is running for a while", func() bool { return strings.Contains(m.logText(), "wait=400ms") })
	must(t, m.cmd.Process.Signal(syscall.SIGHUP))
	if code := m.wait(); code != exitDaemon {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	m.wantLog("the next daemon is the binary on disk")
}

func TestUpgradeRefuses(t *testing.T) {
	m := newMounted(t)
	if code, out := m.upgrade(); code != exitNotMounted || !strings.Contains(out, "no ckptfs mount") {
		t.Errorf("nothing mounted: exit code %d, %q", code, out)
	}
	s := daemonStatus{PID: os.Getpid(), KeeperPID: os.Getpid()}
	if err := s.checkKeeper(); err == nil {
		t.Errorf("a process that is not the daemon's parent was taken for the keeper")
	}
}

// TestRemountWithoutResend runs the keeper in this process, to let it believe that the kernel cannot resend.
func TestRemountWithoutResend(t *testing.T) {
	m := newMounted(t)
	t.Setenv(roleEnv, asCkptfs) // for the daemons
	o := mountOptions{State: m.state, L1Size: 8 << 20, MaxGenerations: 1, MaxStaging: 1, StagingTimeout: 1, AdmissionTimeout: 1,
		Passthrough: passthroughAuto, RAMTier: ramAuto, ShutdownBudget: patience, values: map[string]any{}, Log: logOptions{Level: "debug", Format: "text"}}
	var out bytes.Buffer
	k, err := o.prepare(m.point, streams{out: &out, err: os.Stderr}, slog.Default())
	must(t, err)
	defer k.lock.release()
	ended := make(chan error, 1)
	without := func(p initPacket) initPacket { return p.masked(^uint64(fuse.CAP_HAS_RESEND)) }
	k.fuse.init = without(k.fuse.init)
	signals := make(chan os.Signal, 1)
	go func() { ended <- k.run(signals) }()
	first := m.status()
	must(t, syscall.Kill(first.PID, syscall.SIGKILL))
	var second toyStatusDoc
	eventually(t, "a new mount answers", func() bool {
		if _, err := os.Stat(filepath.Join(m.point, "data")); err != nil {
			return false // dead, or just being replaced
		}
		second = m.status()
		return second.PID != first.PID
	})
	if !second.Fresh {
		t.Errorf("status after the new mount: %+v", second)
	}
	m.wantMounts(1, 1)
	signals <- syscall.SIGTERM
	if err := <-ended; err != nil {
		t.Errorf("the keeper ended with %v", err)
	}
	m.wantMounts(0, 0)
}
