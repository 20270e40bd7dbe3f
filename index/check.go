package index

import (
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"

	"ckptfs/pages"
)

// Problem is a contradiction that Check found.
type Problem struct {
	Table string // where
	ID    uint64 // of the row, 0 if it is not about one
	Text  string
}

func (p Problem) String() string { return fmt.Sprintf("%s %d: %s", p.Table, p.ID, p.Text) }

// Check reads the whole database and returns every contradiction between its
// tables, and between them and what is in memory. Changes wait until it is
// done: it is for tests and for fsck.
func (x *Index) Check() []Problem {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	c := checker{x: x, links: make(map[pages.ID]int32)}
	err := x.readers.read(func(db *conn) error {
		c.db = db
		for _, check := range []func() error{
			c.sqlite, c.directories, c.generations, c.contents, c.pages, c.keys, c.settings, c.usage, c.memory,
		} {
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		c.found("database", 0, "it can't be read: %v", err)
	}
	return c.problems
}

type checker struct {
	x        *Index
	db       *conn
	links    map[pages.ID]int32 // that contents have
	heads    map[pages.ID]uint64
	rows     int // of generations
	problems []Problem
}

func (c *checker) found(table string, id uint64, format string, args ...any) {
	c.problems = append(c.problems, Problem{table, id, fmt.Sprintf(format, args...)})
}

// orphans reports each row of a query: an id, and why it should not be.
func (c *checker) orphans(table, text, why string) error {
	return c.db.query(text, func(row []driver.Value) error {
		c.found(table, uint64(row[0].(int64)), "%s", why)
		return nil
	})
}

func (c *checker) sqlite() error {
	return c.db.query("PRAGMA quick_check", func(row []driver.Value) error {
		if s, _ := row[0].(string); s != "ok" {
			c.found("database", 0, "quick_check: %s", s)
		}
		return nil
	})
}

func (c *checker) directories() error {
	err := c.orphans("identities", "SELECT id FROM identities WHERE model NOT IN (SELECT id FROM models)", "its model is not there")
	if err != nil {
		return err
	}
	err = c.orphans("generations", "SELECT id FROM generations WHERE identity NOT IN (SELECT id FROM identities)", "its identity is not there")
	if err != nil {
		return err
	}
	err = c.orphans("contents", "SELECT generation FROM contents WHERE generation NOT IN (SELECT id FROM generations)", "its generation is not there")
	if err != nil {
		return err
	}
	return c.orphans("generations", "SELECT id FROM generations WHERE id NOT IN (SELECT generation FROM contents)", "it has no contents")
}

// generations compares each row with the generation in memory.
func (c *checker) generations() error {
	return c.db.query("SELECT * FROM generations", func(row []driver.Value) error {
		c.rows++
		id := ObjectID(row[0].(int64))
		c.belowNext("generations", uint64(id))
		stored, err := c.x.generationOf(row)
		if err != nil {
			c.found("generations", uint64(id), "%v", err)
			return nil
		}
		g := c.x.GenerationByID(id)
		if g == nil {
			c.found("generations", uint64(id), "it is not in memory")
			return nil
		}
		stored.seq, stored.Identity = g.seq, g.Identity
		if c.x.touched.has(g) { // written lazily
			stored.used.Store(g.Used())
			stored.state.Store(int32(g.State()))
			stored.supersededBy.Store(uint64(g.SupersededBy()))
		}
		if !slices.EqualFunc(stored.values(), g.values(), equalValues) {
			c.found("generations", uint64(id), "the row is not what is in memory")
		}
		if g.Identity.Generation(g.Name) != g || g.Retired() {
			c.found("generations", uint64(id), "it is not published in memory")
		}
		return nil
	})
}

func equalValues(a, b driver.Value) bool {
	if x, ok := a.([]byte); ok {
		y, ok := b.([]byte)
		return ok && string(x) == string(y)
	}
	return a == b
}

func (c *checker) belowNext(table string, id uint64) {
	if id >= c.x.ids.end.Load() {
		c.found(table, id, "the id was never reserved")
	}
}

// contents counts the links of all page lists.
func (c *checker) contents() error {
	return c.db.query("SELECT generation, manifest, pages, attrs FROM contents", func(row []driver.Value) error {
		id := ObjectID(row[0].(int64))
		g := c.x.GenerationByID(id)
		if g == nil {
			return nil // reported above
		}
		var r contentsRow
		r.manifest, _ = row[1].([]byte)
		r.pages, _ = row[2].([]byte)
		r.attrs, _ = row[3].([]byte)
		contents, err := c.x.unpack(g, r)
		if err != nil {
			c.found("contents", uint64(id), "%v", err)
			return nil
		}
		for _, page := range contents.Pages {
			c.links[page]++
		}
		if int64(len(contents.Manifest)) != g.ManifestBytes || contents.Layout.Bytes() != g.PageBytes {
			c.found("contents", uint64(id), "the manifest is not what the generation's row says")
		}
		return nil
	})
}

// pages compares the rows of pages with the links, and with memory.
func (c *checker) pages() error {
	c.heads = make(map[pages.ID]uint64)
	byKey := make(map[pages.Key]pages.ID)
	err := pageRows(c.db, func(r PageRow) error {
		c.belowNext("pages", uint64(r.ID))
		if n := c.links[r.ID]; n != r.Links {
			c.found("pages", uint64(r.ID), "it says %d links, contents have %d", r.Links, n)
		}
		delete(c.links, r.ID)
		c.heads[r.ID] = keyHead(&r.Key)
		if other, ok := byKey[r.Key]; ok {
			c.found("pages", uint64(r.ID), "it has the same key as page %d", other)
		}
		byKey[r.Key] = r.ID
		if p := c.x.pages.get(r.ID); p != nil && (p.Links() != r.Links || p.Disk() != r.Disk || p.Attr() != r.Attr || p.Key != r.Key || p.Bytes != r.Bytes) {
			c.found("pages", uint64(r.ID), "the row is not what is in memory")
		}
		if ids := c.x.keys.lookup([]pages.Key{r.Key}); ids[0] != r.ID {
			c.found("pages", uint64(r.ID), "its key finds page %d in memory", ids[0])
		}
		return nil
	}, "SELECT "+pageColumns+" FROM pages")
	for _, id := range slices.Sorted(maps.Keys(c.links)) {
		c.found("contents", uint64(id), "this page has %d links, but no row", c.links[id])
	}
	return err
}

// keys compares the table keys with the rows of pages.
func (c *checker) keys() error {
	err := c.db.query("SELECT block, entries FROM keys", func(row []driver.Value) error {
		block := row[0].(int64)
		err := decodeKeyBlock(block, row[1], func(e keyEntry) {
			if head, ok := c.heads[e.id]; !ok || head != e.head {
				c.found("keys", uint64(e.id), "this page has no row with such a key")
			}
			delete(c.heads, e.id)
		})
		if err != nil {
			c.found("keys", uint64(block), "%v", err)
		}
		return nil
	})
	for _, id := range slices.Sorted(maps.Keys(c.heads)) {
		c.found("keys", uint64(id), "this page's key is missing")
	}
	return err
}

// memory looks for what is in memory only.
func (c *checker) memory() error {
	if n := c.x.Count(); n != c.rows {
		c.found("generations", 0, "%d rows, %d in memory", c.rows, n)
	}
	for _, t := range []struct {
		table string
		n     int
	}{
		{"models", c.x.countModels()},
		{"identities", c.x.countIdentities()},
	} {
		rows, err := c.db.integer("SELECT count(*) FROM " + t.table)
		if err != nil {
			return err
		}
		if int(rows) != t.n {
			c.found(t.table, 0, "%d rows, %d in memory", rows, t.n)
		}
	}
	return nil
}

func (x *Index) countModels() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.mu.models.len()
}

func (x *Index) countIdentities() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.mu.identityByID)
}
