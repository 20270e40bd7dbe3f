package index

import (
	"database/sql/driver"
	"fmt"
	"sync"
)

// Model is a directory of identities.
type Model struct {
	ID   ObjectID
	Name string
	attrCell
	settings

	gone bool // removed; the writer's lock guards it

	mu struct {
		sync.RWMutex
		identities listing[*Identity]
	}
}

func (m *Model) objectID() ObjectID { return m.ID }
func (m *Model) objectName() string { return m.Name }

// Model returns the model of a name, nil if there is none.
func (x *Index) Model(name string) *Model {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.mu.models.get(name)
}

// ModelByID returns the model of an id, nil if there is none.
func (x *Index) ModelByID(id ObjectID) *Model {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.mu.modelByID[id]
}

// Models returns at most max models with ids greater than after, ascending.
func (x *Index) Models(after ObjectID, max int) []*Model {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.mu.models.after(after, max)
}

// CreateModel makes a model. ErrExist if the name is there.
func (x *Index) CreateModel(name string, a Attr, op Op) (*Model, error) {
	id := x.NextID()
	if id == 0 {
		return nil, ErrFull
	}
	return x.createModel(id, name, a, op)
}

func (x *Index) createModel(id ObjectID, name string, a Attr, op Op) (*Model, error) {
	m := &Model{ID: id, Name: name}
	m.set(a)
	err := x.update("creating a model", op, func(tx *conn) error {
		if x.Model(name) != nil {
			return ErrExist
		}
		_, err := tx.exec("INSERT INTO models VALUES (?, ?, ?, ?, ?, ?)",
			append([]driver.Value{int64(m.ID), name}, a.values()...)...)
		return err
	}, func() { x.addModel(m) })
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (x *Index) addModel(m *Model) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.models.add(m)
	x.mu.modelByID[m.ID] = m
}

// RemoveModel removes a model. ErrNotEmpty if it has an identity, ErrNotExist
// if it is removed already.
func (x *Index) RemoveModel(m *Model, op Op) error {
	return x.free("removing a model", op, func(tx *conn) error {
		switch {
		case m.gone:
			return ErrNotExist
		case m.identities() > 0:
			return fmt.Errorf("model %s: %w", m.Name, ErrNotEmpty)
		}
		if err := deleteSettings(tx, m); err != nil {
			return err
		}
		_, err := tx.exec("DELETE FROM models WHERE id = ?", int64(m.ID))
		return err
	}, func() {
		m.gone = true
		x.forget(m)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.mu.models.remove(m)
		delete(x.mu.modelByID, m.ID)
	})
}

func (m *Model) identities() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.identities.len()
}

// loadModels reads all models.
func (x *Index) loadModels(c *conn) error {
	return c.query("SELECT id, name, mode, uid, gid, mtime FROM models ORDER BY id", func(row []driver.Value) error {
		m := &Model{ID: ObjectID(row[0].(int64)), Name: row[1].(string)}
		m.set(attrOf(row[2:]))
		x.addModel(m)
		return nil
	})
}
