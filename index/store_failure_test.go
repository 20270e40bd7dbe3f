package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// snapshot is what a failed change must leave as it was.
type snapshot struct {
	generations []*Generation
	mtime       int64
	keys        int
	pages       map[uint64]int32
}

func snapshotOf(t *testing.T, x *Index, i *Identity) snapshot {
	t.Helper()
	s := snapshot{generations: i.Generations(0, 1000), mtime: i.Attr().Mtime, keys: len(x.keys.ids), pages: make(map[uint64]int32)}
	if err := x.EachPage(func(r PageRow) error { s.pages[uint64(r.ID)] = r.Links; return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s snapshot) check(t *testing.T, x *Index, i *Identity) {
	t.Helper()
	now := snapshotOf(t, x, i)
	if !slices.Equal(now.generations, s.generations) || now.mtime != s.mtime || now.keys != s.keys || len(now.pages) != len(s.pages) {
		t.Errorf("a failure changed %+v to %+v", s, now)
	}
	for id, links := range s.pages {
		if now.pages[id] != links {
			t.Errorf("a failure changed the links of page %d from %d to %d", id, links, now.pages[id])
		}
	}
	mustCheck(t, x)
}

func TestFullDatabase(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	first := publish(t, x, i, draft{tokens: repeated(600, 0)})
	size := must(x.writer.mu.conn.integer("PRAGMA page_count"))
	before := snapshotOf(t, x, i)

	must(x.writer.mu.conn.integer(fmt.Sprintf("PRAGMA max_page_count = %d", size)))
	full := 0
	for n := range 40 { // free space inside of the database may take a few
		p := must(publication(x, i, draft{tokens: repeated(5000, uint32(1000*n))}))
		_, _, err := x.Publish(p)
		if err == nil {
			before = snapshotOf(t, x, i)
			continue
		}
		full++
		if !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("publishing into a full database: %v", err)
		}
		before.check(t, x, i)
		if g := x.GenerationByID(p.ID); g != nil {
			t.Error("what was not published is there")
		}
	}
	if full == 0 {
		t.Fatal("the database was never full")
	}
	// What needs no space works, and makes some.
	if _, err := x.Retire([]*Generation{first}, "for space", 1, 0, nil); err != nil {
		t.Errorf("retiring from a full database: %v", err)
	}
	must(x.writer.mu.conn.integer("PRAGMA max_page_count = 1000000"))
	publish(t, x, i, draft{tokens: repeated(5000, 1<<20)})
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	x, err := Open(filepath.Join(dir, "index.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := newIdentity(t, x, "")
	before := snapshotOf(t, x, i)
	var full error
	for n := 0; full == nil && n < 1000; n++ {
		_, _, full = x.Publish(must(publication(x, i, draft{tokens: repeated(5000, uint32(1000*n))})))
		if full == nil {
			before = snapshotOf(t, x, i)
		}
	}
	if !errors.Is(full, ErrFull) {
		t.Fatalf("on a full disk: %v", full)
	}
	before.check(t, x, i)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m"); err != nil {
		t.Fatal(err)
	}
	g := publish(t, x, i, draft{tokens: repeated(5000, 1<<20)})
	mustCheck(t, x)
	mustClose(t, x)
	x = openStore(t, filepath.Join(dir, "index.db"))
	if x.GenerationByID(g.ID) == nil || x.Count() != len(before.generations)+1 {
		t.Error("after reopening, something is missing")
	}
	mustClose(t, x)
}

func TestFailedTransactions(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	publish(t, x, i, draft{tokens: repeated(600, 0)})
	failed := errors.New("a failure of the test")
	before := snapshotOf(t, x, i)
	err := x.update("a test", 0, func(tx *conn) error {
		if _, err := tx.exec("DELETE FROM pages"); err != nil {
			return err
		}
		return failed
	}, func() { t.Error("applied") })
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	before.check(t, x, i)

	// The connection is lost in the middle of a transaction.
	x.update("a test", 0, func(tx *conn) error {
		if _, err := tx.exec("DELETE FROM pages"); err != nil {
			t.Error(err)
		}
		tx.close()
		return failed
	}, func() { t.Error("applied") })
	before.check(t, x, i)

	// COMMIT itself fails: a deferred constraint is the way to have it fail at will.
	must(must(x.writer.connLocked()).integer("PRAGMA foreign_keys = 1"))
	for range 2 {
		err = x.update("a test", 0, func(tx *conn) error {
			for _, text := range []string{
				"CREATE TEMP TABLE IF NOT EXISTS parent (id INTEGER PRIMARY KEY)",
				"CREATE TEMP TABLE IF NOT EXISTS child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
				"DELETE FROM pages",
				"INSERT INTO child VALUES (1)",
			} {
				if _, err := tx.exec(text); err != nil {
					return err
				}
			}
			return nil
		}, nil)
		if err == nil { // foreign keys are off by default
			t.Fatal("the commit did not fail")
		}
		before.check(t, x, i)
	}
	publish(t, x, i, draft{tokens: repeated(700, 0)})
}

// TestStatementThatEndsTheTransaction: what would come after it must not be
// committed on its own.
func TestStatementThatEndsTheTransaction(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	a := publish(t, x, i, draft{tokens: repeated(600, 0)})
	// As SQLite does when the disk fails under some statements.
	must(must(x.writer.connLocked()).exec(
		"CREATE TEMP TRIGGER failing BEFORE UPDATE OF state ON generations BEGIN SELECT RAISE(ROLLBACK, 'a test'); END"))
	before := snapshotOf(t, x, i)
	p := must(publication(x, i, draft{tokens: repeated(700, 0)}))
	p.Prefixes = []ObjectID{a.ID}
	p.Supersede = func(_ *Generation, prefixes, _ []*Generation) (*Generation, []*Generation) { return nil, prefixes }
	if _, _, err := x.Publish(p); err == nil {
		t.Fatal("the publication did not fail")
	}
	before.check(t, x, i)
	if events := must(x.History(i, p.Derived.Name, 10)); len(events) > 0 {
		t.Errorf("the history tells of it: %v", events)
	}
	must(must(x.writer.connLocked()).exec("DROP TRIGGER failing"))
	if _, _, err := x.Publish(p); err != nil {
		t.Error(err)
	}
}

func TestReserveIsForAllWhoFindTheDiskFull(t *testing.T) {
	dir := t.TempDir()
	x := must(Open(filepath.Join(dir, "index.db"), Options{ReservePath: filepath.Join(dir, "reserve"), ReserveBytes: 1 << 16}))
	t.Cleanup(func() { mustClose(t, x) })
	calls := 0
	err := x.free("a test", 0, func(*conn) error {
		if calls++; calls == 1 {
			if !x.reserve.release(x.reserve.given.Load()) { // another deletion was a little earlier
				t.Error("there is no reserve")
			}
			return ErrFull
		}
		return nil
	}, nil)
	if err != nil || calls != 2 {
		t.Errorf("called %d times: %v", calls, err)
	}
	if x.reserve.release(x.reserve.given.Load()) {
		t.Error("the reserve was given up twice")
	}
}

// TestFailedFlush: what a flush could not write is written by the next one.
func TestFailedFlush(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := openStore(t, path)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(600, 0)})
	for n := range 2 * flushBatch { // some that are gone, so that there are several batches
		x.touched.add(&Generation{ID: ObjectID(1<<40 + n)})
	}
	x.Touch(g, 1<<60)
	must(must(x.writer.connLocked()).integer("PRAGMA query_only = 1"))
	if err := x.FlushTouched(); err == nil {
		t.Fatal("the flush did not fail")
	}
	must(must(x.writer.connLocked()).integer("PRAGMA query_only = 0"))
	if n := len(x.touched.mu.generations); n != 2*flushBatch+1 {
		t.Errorf("%d generations wait to be written", n)
	}
	mustClose(t, x)
	x = openStore(t, path)
	if used := x.GenerationByID(g.ID).Used(); used != 1<<60 {
		t.Errorf("it was used at %d", used)
	}
}

func TestSharedPageThatIsGone(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(600, 0)})
	p := must(publication(x, i, draft{tokens: repeated(700, 0)})) // shares pages, which are lost before it is published
	must(x.Retire([]*Generation{g}, "a test", 1, 0, nil))
	before := snapshotOf(t, x, i)
	if _, _, err := x.Publish(p); !errors.Is(err, ErrNotExist) {
		t.Errorf("publishing without its pages: %v", err)
	}
	before.check(t, x, i)
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, f func(c *conn)) string {
		path := filepath.Join(dir, name)
		c := must(openConn(path, "rwc"))
		f(c)
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	query := func(c *conn, texts ...string) {
		for _, text := range texts {
			if err := c.query(text, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("SQLite format 3\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := []string{
		garbage, short, dir,
		make("foreign", func(c *conn) { query(c, "CREATE TABLE t (x)") }),
		make("other application", func(c *conn) { query(c, "CREATE TABLE t (x)", "PRAGMA application_id = 7") }),
		make("other version", func(c *conn) {
			if err := createSchema(c); err != nil {
				t.Fatal(err)
			}
			query(c, "PRAGMA user_version = 99")
		}),
		make("no tables", func(c *conn) {
			query(c, "CREATE TABLE t (x)", "PRAGMA journal_mode = WAL",
				fmt.Sprintf("PRAGMA application_id = %d", applicationID), fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
		}),
		make("orphan", func(c *conn) {
			if err := createSchema(c); err != nil {
				t.Fatal(err)
			}
			query(c, "PRAGMA journal_mode = WAL", "INSERT INTO identities VALUES (5, 4, 'x', NULL, 0, 0, 0, 0, 0, 0, 0)")
		}),
	}
	for _, path := range paths {
		before, _ := os.ReadFile(path)
		x, err := Open(path, Options{})
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", filepath.Base(path), err)
			if x != nil {
				x.Close()
			}
		}
		if after, _ := os.ReadFile(path); string(before) != string(after) {
			t.Errorf("%s was changed", filepath.Base(path))
		}
	}
}

func TestOpenOfADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := openStore(t, path)
	i := newIdentity(t, x, "")
	for n := range 50 {
		publish(t, x, i, draft{tokens: repeated(500, uint32(n*1000))})
	}
	mustClose(t, x)
	whole := must(os.ReadFile(path))
	for at := 4096; at < len(whole); at += 4096 {
		damaged := slices.Clone(whole)
		for n := range 4096 {
			damaged[at+n] = 0xa5
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		x, err := Open(path, Options{})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("page %d damaged: %v", at/4096, err)
			}
			continue
		}
		if len(x.Check()) == 0 { // what is read on demand only
			t.Errorf("page %d damaged: nobody notices", at/4096)
		}
		x.Close()
	}
}

func TestReadOnlyDatabase(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(600, 0)})
	must(x.writer.mu.conn.integer("PRAGMA query_only = 1"))
	before := snapshotOf(t, x, i)
	if _, err := x.Retire([]*Generation{g}, "a test", 1, 0, nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("retiring: %v", err)
	}
	before.check(t, x, i)
	must(x.writer.mu.conn.integer("PRAGMA query_only = 0"))
}
