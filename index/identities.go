package index

import (
	"database/sql/driver"
	"fmt"
	"sync"
	"sync/atomic"
)

// Identity is a directory of generations, all of one identity document.
type Identity struct {
	ID    ObjectID
	Model *Model
	Name  string
	attrCell
	settings

	documentAttr attrCell
	document     atomic.Pointer[Document]
	gone         bool // removed; the writer's lock guards it

	// mu guards what is published, so that a publication is seen by name, in
	// the listing and by Find at the same instant.
	mu struct {
		sync.RWMutex
		generations listing[*Generation]
		published   prefixes[*Generation]
		retired     prefixes[*retirement]
		requests    requests
	}
}

func (i *Identity) objectID() ObjectID { return i.ID }
func (i *Identity) objectName() string { return i.Name }

// Document returns the identity's document, nil if it has none yet.
func (i *Identity) Document() *Document { return i.document.Load() }

// Identity returns the identity of a name, nil if there is none.
func (m *Model) Identity(name string) *Identity {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.identities.get(name)
}

// Identities returns at most max identities with ids greater than after,
// ascending.
func (m *Model) Identities(after ObjectID, max int) []*Identity {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.identities.after(after, max)
}

// IdentityByID returns the identity of an id, nil if there is none.
func (x *Index) IdentityByID(id ObjectID) *Identity {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.mu.identityByID[id]
}

// CreateIdentity makes an identity, with or without its document, and sets
// the model's mtime to that of a. ErrExist if the name is there, ErrNotExist
// if the model is gone.
func (x *Index) CreateIdentity(m *Model, name string, doc *Document, a Attr, op Op) (*Identity, error) {
	id := x.NextID()
	if id == 0 {
		return nil, ErrFull
	}
	return x.createIdentity(id, m, name, doc, a, op)
}

func (x *Index) createIdentity(id ObjectID, m *Model, name string, doc *Document, a Attr, op Op) (*Identity, error) {
	i := &Identity{ID: id, Model: m, Name: name}
	i.set(a)
	i.documentAttr.set(documentAttr(a))
	i.document.Store(doc)
	err := x.update("creating an identity", op, func(tx *conn) error {
		switch {
		case m.gone:
			return fmt.Errorf("model %s: %w", m.Name, ErrNotExist)
		case m.Identity(name) != nil:
			return ErrExist
		}
		_, err := tx.exec("INSERT INTO identities VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			append(append([]driver.Value{int64(i.ID), int64(m.ID), name, documentValue(doc)}, a.values()...), a.values()[1:]...)...)
		if err != nil {
			return err
		}
		_, err = tx.exec("UPDATE models SET mtime = ? WHERE id = ?", a.Mtime, int64(m.ID))
		return err
	}, func() {
		m.touch(a.Mtime)
		x.addIdentity(i)
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// documentAttr is a with the mode that all documents have.
func documentAttr(a Attr) Attr {
	a.Mode = 0o444
	return a
}

// DocumentAttr returns the attributes of the identity's document.
func (i *Identity) DocumentAttr() Attr { return i.documentAttr.Attr() }

// SetDocumentAttr changes them; a document's mode is always 0444.
func (x *Index) SetDocumentAttr(i *Identity, change func(Attr) Attr) error {
	var a Attr
	return x.update("setting attributes", 0, func(tx *conn) error {
		a = change(i.DocumentAttr())
		_, err := tx.exec("UPDATE identities SET doc_uid = ?, doc_gid = ?, doc_mtime = ? WHERE id = ?", append(a.values()[1:], int64(i.ID))...)
		return err
	}, func() { i.documentAttr.set(documentAttr(a)) })
}

// documentValue is the column document: NULL if there is none.
func documentValue(doc *Document) driver.Value {
	if doc == nil {
		return nil
	}
	return doc.Doc
}

func (x *Index) addIdentity(i *Identity) {
	x.mu.Lock()
	x.mu.identityByID[i.ID] = i
	x.mu.Unlock()
	i.Model.mu.Lock()
	defer i.Model.mu.Unlock()
	i.Model.mu.identities.add(i)
}

// SetDocument gives an identity its document. ErrExist if it has another one,
// ErrNotExist if it is gone.
func (x *Index) SetDocument(i *Identity, doc *Document, op Op) error {
	return x.update("storing an identity document", op, func(tx *conn) error {
		if i.gone {
			return ErrNotExist
		}
		if old := i.Document(); old != nil && old.Digest != doc.Digest {
			return ErrExist
		}
		_, err := tx.exec("UPDATE identities SET document = ? WHERE id = ?", doc.Doc, int64(i.ID))
		return err
	}, func() { i.document.Store(doc) })
}

// RemoveDocument takes an identity's document away. Nothing can be published
// until it has one again. ErrDocumentNeeded if something is.
func (x *Index) RemoveDocument(i *Identity, op Op) error {
	return x.free("removing an identity document", op, func(tx *conn) error {
		switch {
		case i.gone || i.Document() == nil:
			return ErrNotExist
		case i.count() > 0:
			return ErrDocumentNeeded
		}
		_, err := tx.exec("UPDATE identities SET document = NULL WHERE id = ?", int64(i.ID))
		return err
	}, func() { i.document.Store(nil) })
}

// RemoveIdentity removes an identity. ErrNotEmpty if it has a generation or a
// document, ErrNotExist if it is removed already.
func (x *Index) RemoveIdentity(i *Identity, op Op) error {
	return x.free("removing an identity", op, func(tx *conn) error {
		switch {
		case i.gone:
			return ErrNotExist
		case i.Document() != nil || i.count() > 0:
			return fmt.Errorf("identity %s: %w", i.Name, ErrNotEmpty)
		}
		if err := deleteSettings(tx, i); err != nil {
			return err
		}
		_, err := tx.exec("DELETE FROM identities WHERE id = ?", int64(i.ID))
		return err
	}, func() {
		i.gone = true
		x.forget(i)
		x.usage.forget(i.ID)
		x.mu.Lock()
		delete(x.mu.identityByID, i.ID)
		x.mu.Unlock()
		i.Model.mu.Lock()
		defer i.Model.mu.Unlock()
		i.Model.mu.identities.remove(i)
	})
}

// count returns how many generations are published.
func (i *Identity) count() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.mu.generations.len()
}

// loadIdentities reads all identities. Models must be there.
func (x *Index) loadIdentities(c *conn) error {
	const text = "SELECT id, model, name, document, mode, uid, gid, mtime, doc_uid, doc_gid, doc_mtime FROM identities ORDER BY id"
	return c.query(text, func(row []driver.Value) error {
		i := &Identity{
			ID:    ObjectID(row[0].(int64)),
			Model: x.mu.modelByID[ObjectID(row[1].(int64))],
			Name:  row[2].(string),
		}
		if i.Model == nil {
			return corruptf("identity %d is in model %d, which is not there", i.ID, row[1])
		}
		if raw, ok := row[3].([]byte); ok {
			doc, err := ParseDocument(raw)
			if err != nil {
				return corruptf("the document of identity %d: %v", i.ID, err)
			}
			i.document.Store(doc)
		}
		i.set(attrOf(row[4:]))
		i.documentAttr.set(documentAttr(Attr{UID: uint32(row[8].(int64)), GID: uint32(row[9].(int64)), Mtime: row[10].(int64)}))
		x.addIdentity(i)
		return nil
	})
}
