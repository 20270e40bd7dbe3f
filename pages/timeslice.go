package pages

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// longSlice is the time slice of threads that work long without a pause. The usual one is 0.7 to 2.8 ms, by the number
// of CPUs (kernel/sched/fair.c, sysctl_sched_base_slice).
const longSlice = 10 * time.Millisecond

// LongSlice has the calling goroutine work in long time slices until end is called, by the same goroutine: for work that
// keeps a CPU busy for milliseconds, hashing, coding, copying. It gets as much of the CPUs as before, but a thread that
// wakes up and has a shorter slice, one that takes requests or a client, is let in at once and does not wait until the
// slice is over, which the kernel may notice up to a tick (4 or 10 ms) later (sched_setattr(2), sched_runtime of a
// thread of SCHED_OTHER; PREEMPT_SHORT in kernel/sched/features.h). Before Linux 6.12, and where it is refused, it
// changes nothing.
func LongSlice() (end func()) {
	runtime.LockOSThread()
	was, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return runtime.UnlockOSThread
	}
	long := *was
	long.Runtime = uint64(longSlice)
	if err := unix.SchedSetAttr(0, &long, 0); err != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.SchedSetAttr(0, was, 0)
		runtime.UnlockOSThread()
	}
}
