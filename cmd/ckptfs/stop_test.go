package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBusyMountIsDetached(t *testing.T) {
	m := newMounted(t).start()
	f, err := os.Open(filepath.Join(m.point, "data"))
	must(t, err)
	defer f.Close()
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	m.wantMounts(0, 0)
	if _, err := f.Read(make([]byte, 10)); !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("reading the open file afterwards: %v", err)
	}
}

func TestKeepRAM(t *testing.T) {
	m := newMounted(t, "--keep-ram").start()
	mark := filepath.Join(m.state, ramDirName, "mark")
	must(t, os.WriteFile(mark, nil, 0o600))
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	m.wantMounts(0, 1)
	m.flags = append(m.flags, "--keep-ram=false", "--l1-size=16MiB")
	m.start()
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the RAM tier was not taken over: %v", err)
	}
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	m.wantMounts(0, 0)
}

func TestSharedRAMTier(t *testing.T) {
	m := newMounted(t, "--ram-tier=shm").start()
	dir := sharedRAMDir(m.state)
	if !strings.Contains(m.line, "directory in /dev/shm") {
		t.Errorf("the line is %q", m.line)
	}
	must(t, os.WriteFile(filepath.Join(dir, "mark"), nil, 0o600))
	must(t, m.cmd.Process.Kill())
	m.wait()
	m.flags = append(m.flags, "--ram-tier=tmpfs")
	if code, text := m.refused(); code != exitRAM || !strings.Contains(text, dir) {
		t.Errorf("--ram-tier=tmpfs over pages in %s: exit code %d, %q", dir, code, text)
	}
	m.flags = append(m.flags, "--ram-tier=auto")
	m.start()
	if _, err := os.Stat(filepath.Join(dir, "mark")); err != nil {
		t.Errorf("the RAM tier was not taken over: %v", err)
	}
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

func TestStopHasABudget(t *testing.T) {
	m := newMounted(t, "--shutdown-budget=500ms")
	m.mode("stuck")
	m.start()
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d: a stuck daemon is no failure of the stop", code)
	}
	if !strings.Contains(m.logText(), "stopped at the end of the budget") {
		t.Errorf("the log does not say that the budget was over:\n%s", m.logText())
	}
	m.wantMounts(0, 1) // what could not be closed in peace is kept
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	m := newMounted(t, "--shutdown-budget=1h")
	m.mode("stuck")
	m.start()
	pid := m.status().PID
	must(t, m.cmd.Process.Signal(syscall.SIGINT))
	eventually(t, "it has begun to stop", func() bool { return strings.Contains(m.logText(), "msg=stopping") })
	time.Sleep(signalBurst)
	if code := m.stop(); code != exitForced {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	eventually(t, "the daemon is gone", func() bool { return processGone(pid) })
	m.wantMounts(0, 1)
	m.mode("")
	m.start() // the next start finds nothing in its way
}

// TestSignalsOfOneStop: timeout(1) signals twice, and nobody was impatient.
func TestSignalsOfOneStop(t *testing.T) {
	m := newMounted(t)
	m.mode("slow end")
	m.start()
	must(t, m.cmd.Process.Signal(syscall.SIGINT))
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	if !m.there(toyDrained) {
		t.Error("what is only in RAM was not written")
	}
	m.wantMounts(0, 0)
}

// TestStopWhileADaemonEndsForAnUpgrade: that one writes nothing to disk any more, so another one has to, before the RAM
// tier is given up.
func TestStopWhileADaemonEndsForAnUpgrade(t *testing.T) {
	m := newMounted(t)
	m.mode("slow end")
	m.start()
	must(t, m.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, "the daemon closes its state", func() bool { return m.there(toyClosing) })
	if m.there(toyDrained) {
		t.Fatal("it was drained as for a stop")
	}
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	if !m.there(toyDrained) {
		t.Error("no daemon has written what is only in RAM")
	}
	m.wantMounts(0, 0)
}

// TestStopWhileADaemonHoldsForAnUpgrade: the same, but the daemon still waits for a call that it is answering.
func TestStopWhileADaemonHoldsForAnUpgrade(t *testing.T) {
	m := newMounted(t).start()
	read := make(chan struct{})
	go func() {
		defer close(read)
		os.ReadFile(filepath.Join(m.point, "late")) // how it ends is not the point
	}()
	time.Sleep(100 * time.Millisecond) // it is under way
	must(t, m.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, "the upgrade has begun", func() bool { return strings.Contains(m.logText(), "msg=upgrading") })
	must(t, m.cmd.Process.Signal(syscall.SIGTERM))
	eventually(t, "the stop has begun", func() bool { return strings.Contains(m.logText(), "msg=stopping") })
	must(t, os.WriteFile(filepath.Join(m.state, toyLateFile), nil, 0o600))
	if code := m.wait(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	<-read
	if !m.there(toyDrained) {
		t.Error("no daemon has written what is only in RAM")
	}
	m.wantMounts(0, 0)
}

func TestServiceManagerIsTold(t *testing.T) {
	m := newMounted(t, "--watchdog=0")
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	defer conn.Close()
	next := func(want string) {
		t.Helper()
		must(t, conn.SetReadDeadline(time.Now().Add(patience)))
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if strings.HasPrefix(string(buf[:n]), want) {
				return
			}
			if !strings.HasPrefix(string(buf[:n]), "WATCHDOG=1") {
				t.Fatalf("got %q, want %s", buf[:n], want)
			}
		}
	}
	m.env = []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=300000"}
	m.start()
	next("READY=1\nSTATUS=mounted on " + m.point)
	next("WATCHDOG=1")
	must(t, m.cmd.Process.Signal(syscall.SIGHUP))
	next("RELOADING=1")
	next("READY=1")
	must(t, m.cmd.Process.Signal(syscall.SIGTERM))
	next("STOPPING=1")
	if code := m.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
