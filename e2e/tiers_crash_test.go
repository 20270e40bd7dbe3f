package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Sections 6 and 7 with the disk tier under load: death at any moment loses
// nothing that was published, and power loss nothing that was made durable.

// crashRounds is how often; CKPTFS_E2E_CRASHES says otherwise.
func crashRounds(t *testing.T, n int) int {
	if s := os.Getenv("CKPTFS_E2E_CRASHES"); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		return n
	}
	if testing.Short() {
		return n / 10
	}
	return n
}

// tierFlags make pages go to disk and come back all the time.
var tierFlags = []string{"--l1-size", "1MiB", "--retention", "recency", "--max-generations", "100000", "--l2-min-free", "0", "--admission-timeout", "20s"}

// crowd is the load: each kind of client in goroutines of this program.
type crowd struct {
	wg   sync.WaitGroup
	stop chan struct{}
	mu   sync.Mutex
	errs []error
}

func startCrowd(l *ledger) *crowd {
	c := &crowd{stop: make(chan struct{})}
	for _, f := range []func() error{
		l.publishOne, l.publishOne, l.readOne, l.readOne, func() error { return l.removeOne(30) },
	} {
		c.wg.Go(func() { c.repeat(f) })
	}
	return c
}

func (c *crowd) repeat(f func() error) {
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		if err := f(); err != nil {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
			return
		}
	}
}

// end waits for all; their last calls may have found nobody who serves.
func (c *crowd) end(t *testing.T, killed bool) {
	t.Helper()
	close(c.stop)
	c.wg.Wait()
	for _, err := range c.errs {
		if !killed || !unserved(err) {
			t.Errorf("a client: %v", err)
		}
	}
}

// fsck checks the stopped store. Only with clean it must not even have leftovers.
func (m *mount) fsck(clean bool) {
	m.t.Helper()
	out, err := m.ctl("fsck", "--verify", "--state", m.state)
	if err != nil || clean && !strings.Contains(out, "(0 leftovers)") {
		m.t.Errorf("ckptfs fsck: %v\n%s", err, tail(out))
	}
}

// TestCrashUnderLoad kills keeper and daemon, or ends them, at random moments. Now
// and then it goes on with a new store: all of one is read again in each round.
func TestCrashUnderLoad(t *testing.T) {
	requireFUSE(t)
	t.Logf("seed %d", suite.seed)
	rnd := rand.New(rand.NewPCG(suite.seed, 4))
	const each = 20 // rounds of a store
	rounds := crashRounds(t, 100)
	for first := 0; first < rounds && !t.Failed(); first += each {
		t.Run(fmt.Sprint(first), func(t *testing.T) { crashUnderLoad(t, rnd, min(each, rounds-first)) })
	}
}

func crashUnderLoad(t *testing.T, rnd *rand.Rand, rounds int) {
	m := mountFS(t, modes[0], tierFlags...)
	id := newIdentity("crash", 1)
	l := newLedger(m.addIdentity(t, "model", id), id, suite.seed)
	for round := range rounds {
		c := startCrowd(l)
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		if round%10 == 9 {
			c.end(t, false)
			m.stop()
			m.fsck(true)
		} else {
			m.killKeeper()
			c.end(t, true)
			m.fsck(false)
		}
		m.start()
		l.settle(t)
		if t.Failed() {
			t.Fatalf("in round %d; the log ends with\n%s", round, tail(m.log()))
		}
	}
}

// TestPowerLoss loses the RAM tier, the end of the index's log, and bytes of
// objects that nobody has synced.
func TestPowerLoss(t *testing.T) {
	requireFUSE(t)
	t.Logf("seed %d", suite.seed)
	rnd := rand.New(rand.NewPCG(suite.seed, 5))
	m := newMount(t, modes[0], tierFlags...)
	m.expectWarn("") // there is much to warn of
	id := newIdentity("power", 1)
	m.start()
	l := newLedger(m.addIdentity(t, "model", id), id, suite.seed)
	for round := range crashRounds(t, 20) {
		c := startCrowd(l)
		time.Sleep(time.Duration(200+rnd.IntN(500)) * time.Millisecond)
		close(c.stop)
		c.wg.Wait()
		c.stop = make(chan struct{})
		e := l.pick() // the last fsync: what is in the log now is there
		must(t, l.makeDurable(e))
		l.release(e)
		log := size(filepath.Join(m.state, "index.db-wal"))
		l.neverSync = true
		c2 := startCrowd(l)
		time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
		m.killKeeper()
		c.end(t, false)
		c2.end(t, true)
		l.neverSync = false
		m.losePower(l, rnd, log)
		m.start()
		l.settleDurable(t)
		m.stop()
		m.fsck(true)
		m.start()
		if t.Failed() {
			t.Fatalf("in round %d; the log ends with\n%s", round, tail(m.log()))
		}
	}
}

func size(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// losePower makes the state look as after a power loss. log bytes of the index's
// log are known to be on the disk.
func (m *mount) losePower(l *ledger, rnd *rand.Rand, log int64) {
	m.t.Helper()
	must(m.t, unix.Unmount(filepath.Join(m.state, "ram"), unix.MNT_DETACH))
	wal := filepath.Join(m.state, "index.db-wal")
	if now := size(wal); now > log {
		must(m.t, os.Truncate(wal, log+rnd.Int64N(now-log+1)))
	}
	os.Remove(filepath.Join(m.state, "index.db-shm"))
	synced := map[string]bool{}
	l.mu.Lock()
	for _, e := range l.gens {
		if e.fate == durable {
			for _, p := range e.ps {
				synced[p.storedKey("model")] = true
			}
		}
	}
	l.mu.Unlock()
	objects, err := filepath.Glob(filepath.Join(m.state, "disk", "??", "*"))
	must(m.t, err)
	for _, path := range objects {
		if synced[filepath.Base(path)] || rnd.IntN(5) > 0 {
			continue
		}
		switch rnd.IntN(3) {
		case 0:
			must(m.t, os.Remove(path))
		case 1:
			must(m.t, os.Truncate(path, 0))
		default: // its size is there, its bytes are not
			n := size(path)
			must(m.t, os.Truncate(path, n/2))
			must(m.t, os.Truncate(path, n))
		}
	}
}

// settleDurable is settle after a power loss: what was durable is there and
// right, anything else is right or gone.
func (l *ledger) settleDurable(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, e := range l.gens {
		err := e.check(l.dir(e))
		switch errno := errnoOf(err); {
		case err == nil:
			if e.fate != durable {
				e.fate = published
			}
			continue
		case e.fate == durable:
			t.Errorf("%s was durable: %v", name, err)
		case errno != syscall.ENOENT && errno != syscall.EIO && errno != syscall.ESTALE:
			t.Errorf("%s: %v", name, err)
		case errno != syscall.ENOENT:
			// The loss has been found: it is gone, or going in this instant.
			if !waitFor(patience, func() bool { _, err := os.Lstat(l.dir(e)); return errnoOf(err) == syscall.ENOENT }) {
				t.Errorf("%s has lost a page and is there: %v", name, err)
			}
		}
		delete(l.gens, name)
	}
	for _, name := range names(t, l.ident) {
		if l.gens[name] == nil && name != "identity.json" {
			t.Errorf("%s is there, and could not be read", name)
		}
	}
	if len(l.gens) == 0 {
		t.Log("nothing was left")
	}
}
