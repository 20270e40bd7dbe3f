package pages

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slice is the time slice of the thread, which the test keeps.
func slice(t *testing.T) time.Duration {
	t.Helper()
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(a.Runtime)
}

func TestLongSlice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := slice(t)
	if before == 0 {
		t.Skip("this kernel tells of no time slices")
	}
	end := LongSlice()
	if got := slice(t); got != longSlice {
		t.Errorf("the slice is %v, should be %v", got, longSlice)
	}
	end()
	if got := slice(t); got != before {
		t.Errorf("the slice is %v afterwards, was %v", got, before)
	}
}
