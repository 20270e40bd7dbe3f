package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// churnBlock is the unit in which compared bytes are counted.
const churnBlock = 4096

// TestTiersChurn has eight times what RAM holds go from RAM to disk and back
// under readers of every kind, writers and rm -r. Every block that anybody reads
// is compared.
func TestTiersChurn(t *testing.T) {
	requireFUSE(t)
	t.Logf("seed %d", suite.seed)
	want := int64(1_000_000)
	if testing.Short() {
		want /= 20
	}
	const pageBytes, total = 64 << 10, 64 << 20
	m := mountFS(t, modes[0], "--l1-size", "8MiB", "--retention", "recency", "--admission-timeout", "60s", "--l2-min-free", "0")
	id := newIdentity("churn", 1)
	l := newLedger(m.addIdentity(t, "model", id), id, suite.seed)
	l.neverSync = true
	l.shape = func(id identity, tokens []uint32) generation { return shapedGeneration(id, tokens, 256, pageBytes) }
	var bytes int64
	for bytes < total {
		must(t, l.publishOne())
		bytes = l.bytes()
	}
	keep := len(l.gens)
	c := &crowd{stop: make(chan struct{})}
	var blocks atomic.Int64
	for n := range 16 {
		rnd := rand.New(rand.NewPCG(suite.seed, uint64(n)))
		c.wg.Go(func() { c.repeat(func() error { return l.readPage(rnd, n%4, &blocks) }) })
	}
	for range 4 {
		c.wg.Go(func() { c.repeat(l.publishOne) })
	}
	c.wg.Go(func() { c.repeat(func() error { return l.removeOne(keep) }) })
	waitFor(5*patience, func() bool { return blocks.Load() >= want || c.failed() })
	c.end(t, false)
	if n := blocks.Load(); n < want {
		t.Errorf("only %d blocks were compared", n)
	}
	m.stop()
	m.fsck(true)
}

func (c *crowd) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.errs) > 0
}

// bytes is what the pages of all generations take, shared ones once.
func (l *ledger) bytes() (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[digest]bool{}
	for _, e := range l.gens {
		for _, p := range e.ps {
			if !seen[p.key] {
				seen[p.key] = true
				sum += p.bytes
			}
		}
	}
	return sum
}

// readPage reads a page of some generation in one of four ways.
func (l *ledger) readPage(rnd *rand.Rand, how int, blocks *atomic.Int64) error {
	e := l.pick()
	if e == nil {
		return nil
	}
	defer l.release(e)
	if how == 3 {
		if err := l.restore(e); err != nil {
			return err
		}
		blocks.Add(int64(len(e.ps)) * e.ps[0].bytes / churnBlock)
		return nil
	}
	p := e.ps[rnd.IntN(len(e.ps))]
	f, err := os.Open(filepath.Join(l.dir(e), p.path))
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := p.bytes/churnBlock, error(nil)
	switch how {
	case 0:
		err = checkOpenPage(f, p)
	case 1:
		err = readRandomly(rnd, f, p, n)
	default:
		err = readByMapping(f, p)
	}
	if err != nil {
		return fmt.Errorf("%s, way %d: %w", e.name, how, err)
	}
	blocks.Add(n)
	return nil
}

// readRandomly reads n blocks at random offsets.
func readRandomly(rnd *rand.Rand, f *os.File, p page, n int64) error {
	buf := make([]byte, churnBlock)
	for range n {
		off := 8 * rnd.Int64N((p.bytes-churnBlock)/8+1)
		if _, err := f.ReadAt(buf, off); err != nil {
			return err
		}
		if err := checkBytes(p, 0, off, buf); err != nil {
			return err
		}
	}
	return nil
}

// readByMapping reads through a mapping that outlives its descriptor.
func readByMapping(f *os.File, p page) error {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(p.bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping: %w", err)
	}
	f.Close()
	err = checkBytes(p, 0, 0, mem)
	if e := unix.Munmap(mem); err == nil {
		err = e
	}
	return err
}
