package fusefs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// holders names processes by the threads that the kernel says have opened
// something. It is for one list: what it has found is kept.
type holders struct {
	booted time.Time
	known  map[uint32]holder
}

type holder struct {
	pid     int
	command string
	began   time.Time
}

func newHolders(now time.Time) *holders {
	h := &holders{known: map[uint32]holder{}}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err == nil {
		h.booted = now.Add(-time.Duration(up.Nano()))
	}
	return h
}

// of gives the process of a thread that opened something at a time. The command
// is "" if that process has ended, also if its number has been given out again.
func (hs *holders) of(tid uint32, opened time.Time) (pid int, command string) {
	h, ok := hs.known[tid]
	if !ok {
		h = hs.look(tid)
		hs.known[tid] = h
	}
	if h.began.After(opened.Add(time.Second)) { // the kernel counts in hundredths
		return int(tid), ""
	}
	return h.pid, h.command
}

func (hs *holders) look(tid uint32) holder {
	h := holder{pid: int(tid)}
	if tid == 0 {
		return h // of a pid namespace that is not below ours
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return h
	}
	_, rest, _ := bytes.Cut(raw, []byte("\nTgid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil {
		h.pid = pid
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", h.pid))
	if err != nil {
		return h
	}
	h.command = string(bytes.TrimSuffix(comm, []byte("\n")))
	h.began = hs.booted.Add(startTicks(h.pid) * (time.Second / 100)) // USER_HZ is 100 everywhere
	return h
}

// startTicks is when a process began, in hundredths of a second after the boot;
// 0 if that can't be told.
func startTicks(pid int) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is a command in brackets, which may contain anything.
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	const starttime = 22 - 3
	if len(fields) <= starttime {
		return 0
	}
	n, err := strconv.ParseInt(string(fields[starttime]), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}
