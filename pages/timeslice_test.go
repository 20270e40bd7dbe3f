package pages

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sliceOf is the time slice of a thread, 0 is the caller's. It skips the test where
// the kernel tells of none.
func sliceOf(t *testing.T, thread int) time.Duration {
	t.Helper()
	a, err := unix.SchedGetAttr(thread, 0)
	if err != nil {
		t.Fatal(err)
	}
	if a.Runtime == 0 {
		t.Skip("this kernel tells of no time slices")
	}
	return time.Duration(a.Runtime)
}

func TestLongSlice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := sliceOf(t, 0)
	end := LongSlice()
	if got := sliceOf(t, 0); got != longSlice {
		t.Errorf("the slice is %v, should be %v", got, longSlice)
	}
	end()
	if got := sliceOf(t, 0); got != before {
		t.Errorf("the slice is %v afterwards, was %v", got, before)
	}
}

// TestShortSlices looks at all threads of a process: those that were there, and those that were started since, also by
// goroutines that work in long slices.
func TestShortSlices(t *testing.T) {
	if os.Getenv("CKPTFS_TEST_SHORT_SLICES") == "" { // a process of its own, for it does not go back
		sliceOf(t, 0)
		cmd := exec.Command(os.Args[0], "-test.run=^TestShortSlices$", "-test.v")
		cmd.Env = append(os.Environ(), "CKPTFS_TEST_SHORT_SLICES=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	ShortSlices()
	var ready, over sync.WaitGroup
	stop := make(chan struct{})
	const busy = 8
	ready.Add(2 * busy)
	for range busy {
		over.Go(func() {
			defer LongSlice()()
			ready.Done()
			over.Go(func() {
				runtime.LockOSThread() // so that others need threads of their own
				ready.Done()
				<-stop
			})
			<-stop
		})
	}
	ready.Wait()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, e := range threads {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		switch got := sliceOf(t, id); got {
		case shortSlice:
		case longSlice:
			long++
		default:
			t.Errorf("thread %d has slices of %v", id, got)
		}
	}
	if len(threads) < 2*busy || long != busy {
		t.Errorf("%d threads, of which %d work in long slices, should be %d", len(threads), long, busy)
	}
	close(stop)
	over.Wait()
}
