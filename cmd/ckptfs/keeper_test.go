package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMountServesAndStops(t *testing.T) {
	m := newMounted(t).start()
	if !strings.HasPrefix(m.line, "ckptfs: mounted on "+m.point+" (state "+m.state+", RAM 8.0 MiB tmpfs") {
		t.Errorf("the line is %q", m.line)
	}
	table, err := mountTable()
	must(t, err)
	if at := mountsAt(table, m.point); len(at) != 1 || at[0].fstype != "fuse.ckptfs" || at[0].source != "ckptfs" || !at[0].hasOption("default_permissions") {
		t.Errorf("mounted as %+v", at)
	}
	s := m.status()
	if !s.Fresh || s.KeeperPID != m.cmd.Process.Pid || s.PID == s.KeeperPID || strings.Contains(m.line, "passthrough on") != s.Passthrough {
		t.Errorf("status is %+v, line %q", s, m.line)
	}
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d after SIGTERM; log:\n%s", code, m.logText())
	}
	m.wantMounts(0, 0)
	if !processGone(s.PID) {
		t.Errorf("the daemon is still there")
	}
}

func TestMountMakesItsDirectory(t *testing.T) {
	m := newMounted(t, "--mkdir")
	m.point = filepath.Join(m.point, "deep", "er")
	for range 2 { // missing, and there as a dead mount
		m.start()
		must(t, m.cmd.Process.Kill())
		m.wait()
	}
	m.start()
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
}

// TestDaemonKilledUnderLoad is the promise that makes the keeper worth having.
func TestDaemonKilledUnderLoad(t *testing.T) {
	m := newMounted(t).start()
	l := m.startLoad()
	s := m.status()
	var slowest time.Duration
	for i := range 20 {
		for range rand.IntN(100) {
			m.status() // let it serve for a while
		}
		must(t, syscall.Kill(s.PID, syscall.SIGKILL))
		began := time.Now()
		s = m.awaitDaemon(s.PID)
		slowest = max(slowest, time.Since(began))
		if s.Fresh || s.Restarts != i+1 {
			t.Errorf("kill %d: status is %+v", i+1, s)
		}
	}
	r := l.stop()
	t.Logf("%d cycles, the longest took %v; the slowest restart took %v", r.Cycles, r.Longest, slowest)
	if len(r.Errors) > 0 {
		t.Errorf("clients saw errors: %q", r.Errors)
	}
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	m.wantMounts(0, 0)
}

func TestKeeperKilled(t *testing.T) {
	m := newMounted(t).start()
	s := m.status()
	mark := filepath.Join(m.state, ramDirName, "mark")
	must(t, os.WriteFile(mark, []byte("kept"), 0o600))
	must(t, m.cmd.Process.Kill())
	m.wait()
	eventually(t, "the daemon is gone with its keeper", func() bool { return processGone(s.PID) })
	if _, err := os.ReadDir(m.point); err == nil {
		t.Fatalf("the mount still answers")
	}
	m.start()
	if s := m.status(); !s.Fresh {
		t.Errorf("status is %+v after a new mount", s)
	}
	if b, err := os.ReadFile(mark); string(b) != "kept" {
		t.Errorf("the RAM tier was not taken over: %q, %v", b, err)
	}
	m.wantMounts(1, 1)
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	m.wantMounts(0, 0)
}

func TestGivesUpOnADaemonThatDiesAtOnce(t *testing.T) {
	for mode, want := range map[string]string{"exit": "exit status 7", "panic": "the toy was told to"} {
		t.Run(mode, func(t *testing.T) {
			m := newMounted(t)
			m.mode(mode)
			m.launch()
			if code := m.wait(); code != exitDaemon {
				t.Errorf("exit code %d, want %d", code, exitDaemon)
			}
			if log := m.logText(); !strings.Contains(log, "again and again") || !strings.Contains(log, want) {
				t.Errorf("the log does not say what happened:\n%s", log)
			}
			m.wantMounts(0, 0) // nothing was ever in RAM
		})
	}
}

func TestGivesUpOnADaemonThatCannotServe(t *testing.T) {
	m := newMounted(t)
	m.mode("fatal")
	m.launch()
	if code := m.wait(); code != exitState {
		t.Errorf("exit code %d, want the daemon's own, %d", code, exitState)
	}
	if log := m.logText(); !strings.Contains(log, "the toy was told to fail") || strings.Contains(log, "starting it again") {
		t.Errorf("log:\n%s", log)
	}
}

func TestGivesUpOnARequestThatKills(t *testing.T) {
	m := newMounted(t).start()
	opened := make(chan error, 1)
	go func() {
		f, err := os.Open(filepath.Join(m.point, "poison"))
		if err == nil {
			f.Close()
		}
		opened <- err
	}()
	if code := m.wait(); code != exitDaemon {
		t.Errorf("exit code %d, want %d", code, exitDaemon)
	}
	if err := <-opened; err == nil {
		t.Errorf("the poisoned file could be opened")
	}
	if log := m.logText(); !strings.Contains(log, "SIGSEGV") {
		t.Errorf("log:\n%s", log)
	}
	m.wantMounts(0, 1)
}

func TestUnmountedFromOutside(t *testing.T) {
	m := newMounted(t).start()
	must(t, syscall.Unmount(m.point, 0))
	if code := m.wait(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	m.wantMounts(0, 0)
	if !m.there(toyDrained) {
		t.Error("what is only in RAM was not written before the RAM tier was given up")
	}
}
