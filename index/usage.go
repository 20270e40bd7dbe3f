package index

import (
	"database/sql/driver"
	"fmt"
	"sync"

	"ckptfs/pages"
)

// usage counts, by identity, the bytes of the pages that its published
// generations link, each page once. Only what somebody has asked about is
// counted: without quotas it costs nothing. No two identities share a page.
type usage struct {
	mu struct {
		sync.Mutex
		bytes map[ObjectID]int64
	}
}

// UsedBytes returns the bytes of the pages that the published generations of an
// identity link, each counted once. The first call for an identity reads its
// page lists, and changes wait meanwhile.
func (x *Index) UsedBytes(i *Identity) (n int64, err error) {
	if n, ok := x.usage.get(i.ID); ok {
		return n, nil
	}
	err = x.undisturbed(func() error {
		var known bool
		if n, known = x.usage.get(i.ID); known {
			return nil
		}
		if n, err = x.sumPages(i.ID); err == nil {
			x.usage.set(i.ID, n)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("index: counting the bytes of identity %s: %w", i.Name, err)
	}
	return n, nil
}

func (u *usage) get(id ObjectID) (int64, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, ok := u.mu.bytes[id]
	return n, ok
}

func (u *usage) set(id ObjectID, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.bytes == nil {
		u.mu.bytes = make(map[ObjectID]int64)
	}
	u.mu.bytes[id] = n
}

// add notes that pages were linked first (n > 0) or last (n < 0), after the
// commit. The writer's lock is held.
func (u *usage) add(id ObjectID, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.mu.bytes[id]; ok {
		u.mu.bytes[id] += n
	}
}

// forget is for an identity that is gone.
func (u *usage) forget(id ObjectID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.mu.bytes, id)
}

// counted returns the identities that are counted, nil if there are none.
func (u *usage) counted() map[ObjectID]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.mu.bytes) == 0 {
		return nil
	}
	ids := make(map[ObjectID]bool, len(u.mu.bytes))
	for id := range u.mu.bytes {
		ids[id] = true
	}
	return ids
}

// released are pages whose links a retirement takes away, with the identity that
// they are counted for.
type released struct {
	counted map[ObjectID]bool // the identities that are counted
	owner   map[pages.ID]ObjectID
}

// note remembers the pages of a generation, if they are counted.
func (r *released) note(g *Generation, ids []pages.ID) {
	if !r.counted[g.Identity.ID] {
		return
	}
	if r.owner == nil {
		r.owner = make(map[pages.ID]ObjectID, len(ids))
	}
	for _, id := range ids {
		r.owner[id] = g.Identity.ID
	}
}

// released takes off what no generation links any more, after the commit.
func (u *usage) released(r *released, lists ...[]PageRow) {
	for _, rows := range lists {
		for n := range rows {
			if identity, ok := r.owner[rows[n].ID]; ok && rows[n].Links == 0 {
				u.add(identity, -rows[n].Bytes)
			}
		}
	}
}

// sumPages counts from the tables. The writer's lock is held.
func (x *Index) sumPages(identity ObjectID) (int64, error) {
	var linked map[pages.ID]struct{}
	var sum int64
	err := x.readers.read(func(c *conn) error {
		var err error
		if linked, err = x.linkedPages(c, identity); err != nil {
			return err
		}
		return c.query("SELECT id, bytes FROM pages", func(row []driver.Value) error {
			if _, ok := linked[pages.ID(row[0].(int64))]; ok {
				sum += row[1].(int64)
			}
			return nil
		})
	})
	return sum, err
}

// linkedPages lists the pages of all generations of an identity.
func (x *Index) linkedPages(c *conn, identity ObjectID) (map[pages.ID]struct{}, error) {
	linked := make(map[pages.ID]struct{})
	err := eachPageList(c, func(id ObjectID, list []pages.ID) error {
		if g := x.GenerationByID(id); g == nil || g.Identity.ID != identity {
			return nil
		}
		for _, page := range list {
			linked[page] = struct{}{}
		}
		return nil
	})
	return linked, err
}

// eachPageList reads the page lists of all generations.
func eachPageList(c *conn, each func(ObjectID, []pages.ID) error) error {
	return c.query("SELECT generation, pages FROM contents", func(row []driver.Value) error {
		blob, _ := row[1].([]byte)
		list, err := decodePageList(blob)
		if err != nil {
			return err
		}
		return each(ObjectID(row[0].(int64)), list)
	})
}

// usage counts again what is counted.
func (c *checker) usage() error {
	for id := range c.x.usage.counted() {
		want, err := c.x.sumPages(id)
		if err != nil {
			return err
		}
		if n, _ := c.x.usage.get(id); n != want {
			c.found("identities", uint64(id), "it is said to use %d bytes, its pages have %d", n, want)
		}
	}
	return nil
}
