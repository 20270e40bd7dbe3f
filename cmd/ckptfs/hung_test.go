package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Daemons that hang in each way that the watchdog knows, and what it must not take for a hang.

func TestHungDaemonIsReplaced(t *testing.T) {
	m := newMounted(t, "--watchdog=1s")
	m.mode("hung")
	m.start()
	pid := m.status().PID
	m.mode("")
	m.awaitDaemon(pid)
	m.wantLog("does not answer and is replaced")
}

func TestStoppedDaemonIsReplaced(t *testing.T) {
	m := newMounted(t, "--watchdog=1s").start()
	pid := m.status().PID
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	m.awaitDaemon(pid) // its callers wait until the next one serves
	m.wantLog("does not answer and is replaced")
}

// TestDeafDaemonIsReplaced stops only the threads that read requests: the rest of the daemon lives and answers pings.
func TestDeafDaemonIsReplaced(t *testing.T) {
	m := newMounted(t, "--watchdog=1s").start()
	pid := m.status().PID
	release := make(chan struct{})
	stopped := make(chan int)
	go freezeReaders(pid, stopped, release)
	<-stopped
	m.awaitDaemon(pid)
	close(release)
	<-stopped
	m.wantLog("takes no requests and is replaced")
	if log := m.logText(); !regexp.MustCompile(`calls_waiting=[1-9]`).MatchString(log) {
		t.Errorf("the log does not tell how many calls wait:\n%s", log)
	}
}

// TestLongCallIsNoHang: a call that is answered late, with nobody else there, for twice the watchdog's limit.
func TestLongCallIsNoHang(t *testing.T) {
	manager := listenAsManager(t, time.Second)
	m := newMounted(t, "--watchdog=1s")
	m.env = manager.env
	m.start()
	pid := m.status().PID
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(filepath.Join(m.point, "late"))
		read <- err
	}()
	manager.await(t, 9, "WATCHDOG=1") // four a second or less
	if s := m.status(); s.PID != pid {
		t.Errorf("the daemon was replaced; log:\n%s", m.logText())
	}
	must(t, os.WriteFile(filepath.Join(m.state, toyLateFile), nil, 0o600))
	must(t, <-read)
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
}

// freezeReaders stops each thread of pid that waits in read(2) of /dev/fuse, by ptrace(2), and says how many. They are
// let go when they have been killed, and then, after release, the thread that traced them ends.
func freezeReaders(pid int, stopped chan int, release chan struct{}) {
	runtime.LockOSThread() // to the end: a tracer is a thread
	var frozen []int
	for quiet := 0; quiet < 50 || len(frozen) == 0; quiet++ {
		for _, tid := range readersOf(pid) {
			if unix.PtraceSeize(tid) == nil && unix.PtraceInterrupt(tid) == nil {
				unix.Wait4(tid, nil, unix.WALL, nil)
				frozen, quiet = append(frozen, tid), 0
			}
		}
		time.Sleep(time.Millisecond) // one may be on its way back to the device
	}
	stopped <- len(frozen)
	// The daemon is not gone before its tracer has seen each of them go. This thread may have other children: the keeper,
	// if it is the one that started it. The first thread of a process goes last.
	slices.SortFunc(frozen, func(a, b int) int { return cmp.Compare(b, a) })
	for _, tid := range frozen {
		for gone := false; !gone; {
			var state unix.WaitStatus
			_, err := unix.Wait4(tid, &state, unix.WALL|unix.WNOTHREAD, nil)
			gone = err != nil && err != unix.EINTR || state.Exited() || state.Signaled()
		}
	}
	<-release
	stopped <- 0
}

// readersOf lists the threads of pid that wait in read(2) of /dev/fuse.
func readersOf(pid int) (tids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		call, _ := os.ReadFile(task + "/syscall")
		tid, err := strconv.Atoi(filepath.Base(task))
		if err == nil && bytes.HasPrefix(call, fmt.Appendf(nil, "%d 0x%x ", unix.SYS_READ, daemonFuseFD)) {
			tids = append(tids, tid)
		}
	}
	return tids
}

// serviceListener is a service manager that expects to hear from its service.
type serviceListener struct {
	conn *net.UnixConn
	env  []string
}

func listenAsManager(t *testing.T, watchdog time.Duration) *serviceListener {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return &serviceListener{conn, []string{"NOTIFY_SOCKET=" + socket, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds())}}
}

// await takes what comes until it was n times what is wanted.
func (l *serviceListener) await(t *testing.T, n int, want string) {
	t.Helper()
	must(t, l.conn.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 4096)
	for n > 0 {
		got, err := l.conn.Read(buf)
		must(t, err)
		if strings.HasPrefix(string(buf[:got]), want) {
			n--
		}
	}
}
