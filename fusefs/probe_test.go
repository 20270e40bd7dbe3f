package fusefs

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestProbeFindsADeadlock holds, as a deadlock would for ever, a lock that requests need: Probe waits for it too.
func TestProbeFindsADeadlock(t *testing.T) {
	fs := quietFS(t)
	fs.Probe()
	for name, lock := range map[string]sync.Locker{
		"leases": &fs.leases.mu, "handles": &fs.handles.mu, "tombstones": &fs.tombs.mu, "backing": &fs.backing.mu,
	} {
		lock.Lock()
		done := make(chan struct{})
		go func() { defer close(done); fs.Probe() }()
		blocked := awaitBlocked(done)
		lock.Unlock()
		<-done
		if !blocked {
			t.Errorf("%s: the probe did not need the lock", name)
		}
	}
}

// awaitBlocked waits until a goroutine waits for a lock in Probe, false if it has ended before.
func awaitBlocked(done <-chan struct{}) bool {
	buf := make([]byte, 1<<20)
	for {
		for _, g := range bytes.Split(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
			if bytes.Contains(g, []byte("FS).Probe(")) && bytes.Contains(g, []byte("[sync.Mutex.Lock")) {
				return true
			}
		}
		select {
		case <-done:
			return false
		case <-time.After(time.Millisecond):
		}
	}
}
