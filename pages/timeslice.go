package pages

import (
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Time slices of threads. The kernel gives 0.7 to 2.8 ms, by the number of CPUs (kernel/sched/fair.c,
// sysctl_sched_base_slice), and lets a thread that wakes up in at once only if its slice is shorter than that of the
// thread that has the CPU. Otherwise it waits until that slice is over, which may be noticed as late as the next tick,
// 4 or 10 ms later. (sched_setattr(2), sched_runtime of a thread of SCHED_OTHER, which takes 0.1 to 100 ms; PREEMPT_SHORT
// in kernel/sched/features.h.) The share of the CPUs that a thread gets does not depend on its slice. Before Linux
// 6.12, and where it is refused, nothing changes.
const (
	shortSlice = 100 * time.Microsecond
	longSlice  = 10 * time.Millisecond
)

// ShortSlices has the process work in short time slices, but for LongSlice: for a process whose clients wait for each
// of its answers. It sets those of all threads there are; those that come later have it from the ones that start them.
func ShortSlices() {
	for set := map[string]bool{}; ; {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		before := len(set)
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil && !set[t.Name()] {
				set[t.Name()] = true
				_, _ = setSlice(id, shortSlice)
			}
		}
		if len(set) == before { // else one that was not set yet may have started another
			return
		}
	}
}

// LongSlice has the calling goroutine work in long time slices until end is called, by the same goroutine: for work that
// keeps a CPU busy for milliseconds, hashing, coding, copying, so that clients, and threads that take requests, are let
// in.
func LongSlice() (end func()) {
	runtime.LockOSThread()
	was, err := setSlice(0, longSlice)
	if err != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.SchedSetAttr(0, was, 0)
		runtime.UnlockOSThread()
	}
}

// setSlice sets that of a thread, 0 is the caller's. It returns how the thread was scheduled before.
func setSlice(thread int, slice time.Duration) (was *unix.SchedAttr, err error) {
	if was, err = unix.SchedGetAttr(thread, 0); err != nil {
		return nil, err
	}
	now := *was
	now.Runtime = uint64(slice)
	return was, unix.SchedSetAttr(thread, &now, 0)
}
