package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGTERM (contract, section 7): stores in flight finish, RAM goes to disk, the
// budget holds whatever happens, and the next start is clean.

// term sends SIGTERM. The function that it returns waits for the end, which must
// be a good one.
func (m *mount) term() (ended func()) {
	m.t.Helper()
	must(m.t, m.cmd.Process.Signal(syscall.SIGTERM))
	return func() {
		m.t.Helper()
		done := make(chan error, 1)
		go func() { done <- m.reap() }()
		select {
		case err := <-done:
			must(m.t, err)
		case <-time.After(patience):
			m.giveUp()
			<-done
		}
	}
}

// TestStopFinishesStores: a store that was under way is finished by its client
// after SIGTERM, and is there at the next start, from the disk.
func TestStopFinishesStores(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	id := newIdentity("stop", 1)
	ident := m.addIdentity(t, "model", id)
	g := smallGeneration(id, conversation(1, 900))
	s := beginStaging(t, ident, "late", g)
	ended := m.term()
	eventually(t, "it stops", func() error {
		if !strings.Contains(m.log(), "stopping") {
			return fmt.Errorf("the log does not say so")
		}
		return nil
	})
	s.complete(t)
	must(t, s.rename())
	ended()
	if left := m.mounts(); len(left) > 0 {
		t.Fatalf("still mounted: %q", left)
	}
	m.fsck(true)
	m.start()
	must(t, checkGeneration(filepath.Join(ident, g.name()), g))
}

// TestStopWithStuckWriter: a writer that never ends holds the stop up for no
// longer than the rule says, and loses nothing of others.
func TestStopWithStuckWriter(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--shutdown-budget", "3s")
	m.expectWarn("busy")
	m.expectWarn("detach")
	id := newIdentity("stuck", 1)
	ident := m.addIdentity(t, "model", id)
	g := smallGeneration(id, conversation(1, 900))
	publish(t, ident, g)
	other := smallGeneration(id, conversation(2, 900))
	s := beginStaging(t, ident, "stuck", other)
	a := newAgent(t)
	fd := a.do(request{Op: "open", Path: s.file(other.pages()[0].path), Flags: os.O_CREATE | os.O_EXCL | os.O_WRONLY}).N
	if fd < 0 {
		t.Fatal("the page cannot be made")
	}
	m.term()()
	a.end()
	m.start()
	must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	wantMissing(t, s.path())
	m.stop()
	m.fsck(true)
}

// TestStopCountsWhatIsLeft: the disk takes only a part. The stop says how much is
// left, and since that is in RAM still, the next start loses nothing.
func TestStopCountsWhatIsLeft(t *testing.T) {
	m := onSmallDisk(t, "size=12m", "--l1-size", "32MiB", "--compress", "off")
	id := newIdentity("left", 1)
	ident := m.addIdentity(t, "model", id)
	var gens []generation
	for i := range 20 {
		g := shapedGeneration(id, conversation(uint64(i), 600), 256, 256<<10)
		publish(t, ident, g)
		gens = append(gens, g)
	}
	m.term()()
	if !strings.Contains(m.log(), "pages_left=") || strings.Contains(m.log(), "pages_left=0") {
		t.Errorf("the log does not count what was left:\n%s", tail(m.log()))
	}
	for _, p := range m.mounts() {
		if p == m.path {
			t.Errorf("%s is still mounted", p)
		}
	}
	m.start()
	for _, g := range gens {
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	rmSilently(t, filepath.Join(m.path, "model"))
	m.stop()
	m.fsck(true)
	if left := m.mounts(); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
}
