package index

import (
	"database/sql/driver"
	"fmt"
	"sync/atomic"

	"ckptfs/pages"
)

// Page is a stored page: one inode, however many generations link it.
//
// While anybody holds a *Page, every lookup returns the same pointer, and its
// links and attributes are always those of the last commit.
type Page struct {
	ID    pages.ID
	Key   pages.Key
	Bytes int64
	attrCell

	links  atomic.Int32
	disk   atomic.Int64
	used   bool // since the clock's hand came by; the shard's lock guards it
	cached bool // the clock keeps it; likewise
}

// Links returns in how many places published generations link it: 0 if it is
// kept for something else, or gone.
func (p *Page) Links() int32 { return p.links.Load() }

// Disk returns how many bytes its object takes in the disk tier; 0 if no record
// says that it has one.
func (p *Page) Disk() int64 { return p.disk.Load() }

// PageRow is a page as it is in the database.
type PageRow struct {
	ID    pages.ID
	Key   pages.Key
	Bytes int64
	Links int32
	Attr  Attr
	Disk  int64
}

func (r *PageRow) page() *Page {
	p := &Page{ID: r.ID, Key: r.Key, Bytes: r.Bytes}
	p.links.Store(r.Links)
	p.disk.Store(r.Disk)
	p.set(r.Attr)
	return p
}

// pageColumns are the columns that pageRowOf takes.
const pageColumns = "id, key, bytes, links, mode, uid, gid, mtime, disk"

func pageRowOf(row []driver.Value) (PageRow, error) {
	r := PageRow{
		ID:    pages.ID(row[0].(int64)),
		Bytes: row[2].(int64),
		Links: int32(row[3].(int64)),
		Attr:  attrOf(row[4:]),
		Disk:  row[8].(int64),
	}
	key, _ := row[1].([]byte)
	if len(key) != len(r.Key) {
		return r, corruptf("page %d has a key of %d bytes", r.ID, len(key))
	}
	copy(r.Key[:], key)
	return r, nil
}

// pageRows executes a statement that returns pageColumns.
func pageRows(c *conn, each func(PageRow) error, text string, args ...driver.Value) error {
	return c.query(text, func(row []driver.Value) error {
		r, err := pageRowOf(row)
		if err != nil {
			return err
		}
		return each(r)
	}, args...)
}

const selectPages = "SELECT " + pageColumns + " FROM pages WHERE id IN (SELECT value FROM json_each(?))"

// Page returns the page of an id. ErrNotExist if there is none. It does I/O if
// nobody has used the page for long, and never waits for the writer.
func (x *Index) Page(id pages.ID) (*Page, error) {
	if p := x.pages.get(id); p != nil {
		return p, nil
	}
	found, err := x.loadPages([]pages.ID{id})
	if err != nil {
		return nil, fmt.Errorf("index: reading page %d: %w", id, err)
	}
	if found[0] == nil {
		return nil, fmt.Errorf("page %d: %w", id, ErrNotExist)
	}
	return found[0], nil
}

// PageByKey returns the page of a content key, if there is one.
func (x *Index) PageByKey(k pages.Key) (*Page, bool, error) {
	found, err := x.PagesByKey([]pages.Key{k})
	if err != nil {
		return nil, false, err
	}
	return found[0], found[0] != nil, nil
}

// PagesByKey returns the page of each key, nil where there is none. Only keys
// that are there cost I/O, one read for all of them.
func (x *Index) PagesByKey(keys []pages.Key) ([]*Page, error) {
	found := make([]*Page, len(keys))
	var ids []pages.ID
	var at []int // of each id in keys
	for n, id := range x.keys.lookup(keys) {
		if id == 0 {
			continue
		}
		if found[n] = x.pages.get(id); found[n] == nil {
			ids, at = append(ids, id), append(at, n)
		}
	}
	if len(ids) > 0 {
		loaded, err := x.loadPages(ids)
		if err != nil {
			return nil, fmt.Errorf("index: reading pages: %w", err)
		}
		for n, p := range loaded {
			found[at[n]] = p
		}
	}
	for n, p := range found {
		if p != nil && p.Key != keys[n] { // only the beginning of the key is the same
			found[n] = nil
		}
	}
	return found, nil
}

// loadPages reads pages into the cache, nil for those that are not there.
func (x *Index) loadPages(ids []pages.ID) ([]*Page, error) {
	loaded := make([]*Page, len(ids))
	missing := make(map[pages.ID][]int, len(ids))
	for n, id := range ids {
		missing[id] = append(missing[id], n)
	}
	for attempt := 0; len(missing) > 0; attempt++ {
		want := make([]pages.ID, 0, len(missing))
		for id := range missing {
			want = append(want, id)
		}
		rows := make(map[pages.ID]PageRow, len(want))
		before := x.pages.epochs(want)
		read := func() error {
			return x.readers.read(func(c *conn) error {
				return pageRows(c, func(r PageRow) error { rows[r.ID] = r; return nil }, selectPages, idList(want))
			})
		}
		if attempt < 4 {
			if err := read(); err != nil {
				return nil, err
			}
		} else if err := x.undisturbed(read); err != nil {
			return nil, err
		}
		for n, id := range want {
			r, ok := rows[id]
			if !ok {
				delete(missing, id)
				continue
			}
			p := x.pages.insert(&r, before[n])
			if p == nil {
				continue // it was changed since: what was read may be old
			}
			for _, n := range missing[id] {
				loaded[n] = p
			}
			delete(missing, id)
		}
	}
	return loaded, nil
}

// undisturbed runs f while nothing is being committed.
func (x *Index) undisturbed(f func() error) error {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	return f()
}

// EachPage calls f with every page in the order of the ids, until it returns
// an error, which it then returns. No lock and no read is held meanwhile, so
// that pages may come and go.
func (x *Index) EachPage(f func(PageRow) error) error {
	const batch = 4096
	rows := make([]PageRow, 0, batch)
	for last := pages.ID(0); ; {
		rows = rows[:0]
		err := x.readers.read(func(c *conn) error {
			return pageRows(c, func(r PageRow) error { rows = append(rows, r); return nil },
				"SELECT "+pageColumns+" FROM pages WHERE id > ? ORDER BY id LIMIT ?", int64(last), int64(batch))
		})
		if err != nil {
			return fmt.Errorf("index: reading pages: %w", err)
		}
		for _, r := range rows {
			if err := f(r); err != nil {
				return err
			}
		}
		if len(rows) < batch {
			return nil
		}
		last = rows[batch-1].ID
	}
}
