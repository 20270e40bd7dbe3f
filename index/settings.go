package index

import (
	"database/sql/driver"
	"sync/atomic"
)

// settings are what an operator asked for a model, an identity or a generation.
type settings struct {
	pinned atomic.Bool
	quota  atomic.Int64 // bytes, 0 none
}

// Settable is a model, an identity or a generation.
type Settable interface {
	objectID() ObjectID
	wanted() *settings
	removed() bool // the writer's lock is held

	PinnedItself() bool
	Quota() int64
}

func (s *settings) wanted() *settings { return s }

// PinnedItself reports whether this very object is pinned. It takes no lock.
func (s *settings) PinnedItself() bool { return s.pinned.Load() }

// Quota returns the bound that was set for this very object, bytes; 0 is none.
// It takes no lock.
func (s *settings) Quota() int64 { return s.quota.Load() }

func (m *Model) removed() bool      { return m.gone }
func (i *Identity) removed() bool   { return i.gone }
func (g *Generation) removed() bool { return g.Retired() }

// Pinned reports whether the generation, its identity or its model is pinned:
// then nothing but its owner's rm, or the loss of a page, may retire it.
func (g *Generation) Pinned() bool {
	return g.PinnedItself() || g.Identity.PinnedItself() || g.Identity.Model.PinnedItself()
}

// Pins returns how many objects are pinned themselves.
func (x *Index) Pins() int { return int(x.pins.Load()) }

// SetPin pins an object or lets it go. ErrNotExist if it is gone.
func (x *Index) SetPin(o Settable, pinned bool, op Op) error {
	return x.set(o, op, func() (bool, int64) { return pinned, o.Quota() })
}

// SetQuota bounds the bytes of a model or an identity; 0 lifts the bound.
// Nothing is evicted by it. ErrNotExist if the object is gone.
func (x *Index) SetQuota(o Settable, bytes int64, op Op) error {
	return x.set(o, op, func() (bool, int64) { return o.PinnedItself(), bytes })
}

// set gives an object what wanted says with the writer's lock held.
func (x *Index) set(o Settable, op Op, wanted func() (pinned bool, quota int64)) error {
	var pinned bool
	var quota int64
	return x.update("setting a pin or quota", op, func(tx *conn) error {
		if o.removed() {
			return ErrNotExist
		}
		pinned, quota = wanted()
		if !pinned && quota == 0 {
			return deleteSettings(tx, o)
		}
		_, err := tx.exec("INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", int64(o.objectID()), pinned, quota)
		return err
	}, func() { x.apply(o.wanted(), pinned, quota) })
}

// apply changes memory after the commit.
func (x *Index) apply(s *settings, pinned bool, quota int64) {
	if was := s.pinned.Swap(pinned); was != pinned {
		if pinned {
			x.pins.Add(1)
		} else {
			x.pins.Add(-1)
		}
	}
	s.quota.Store(quota)
}

// forget is apply for an object that is gone.
func (x *Index) forget(o Settable) { x.apply(o.wanted(), false, 0) }

// deleteSettings deletes the row of an object, if it has one.
func deleteSettings(tx *conn, o Settable) error {
	if !o.PinnedItself() && o.Quota() == 0 {
		return nil
	}
	_, err := tx.exec("DELETE FROM settings WHERE object = ?", int64(o.objectID()))
	return err
}

// loadSettings reads all of them. All objects must be there.
func (x *Index) loadSettings(c *conn) error {
	return c.query("SELECT object, pin, quota FROM settings", func(row []driver.Value) error {
		o := x.settable(ObjectID(row[0].(int64)))
		if o == nil {
			return corruptf("settings of object %d, which is not there", row[0])
		}
		x.apply(o.wanted(), row[1].(int64) != 0, row[2].(int64))
		return nil
	})
}

// settable finds an object by its id; ids are unique over all kinds.
func (x *Index) settable(id ObjectID) Settable {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if m := x.mu.modelByID[id]; m != nil {
		return m
	}
	if i := x.mu.identityByID[id]; i != nil {
		return i
	}
	if g := x.mu.generationByID[id]; g != nil {
		return g
	}
	return nil
}

// settings compares the table with what is in memory.
func (c *checker) settings() error {
	pins := 0
	err := c.db.query("SELECT object, pin, quota FROM settings", func(row []driver.Value) error {
		id := ObjectID(row[0].(int64))
		o := c.x.settable(id)
		if o == nil {
			c.found("settings", uint64(id), "its object is not there")
			return nil
		}
		if o.PinnedItself() != (row[1].(int64) != 0) || o.Quota() != row[2].(int64) {
			c.found("settings", uint64(id), "the row is not what is in memory")
		}
		if o.PinnedItself() {
			pins++
		}
		return nil
	})
	if n := c.x.Pins(); err == nil && n != pins {
		c.found("settings", 0, "%d pinned in the table, %d counted in memory", pins, n)
	}
	return err
}
