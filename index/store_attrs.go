package index

import (
	"cmp"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
)

// Attr is what can be set of an object: permission bits, owner, mtime in
// nanoseconds since 1970.
type Attr struct {
	Mode     uint32
	UID, GID uint32
	Mtime    int64
}

// attrCell holds the attributes of an object in memory.
type attrCell struct{ p atomic.Pointer[Attr] }

// Attr returns the attributes. It takes no lock.
func (a *attrCell) Attr() Attr { return *a.p.Load() }

func (a *attrCell) set(v Attr) { a.p.Store(&v) }

// touch sets the mtime. The writer's lock is held, as for every set.
func (a *attrCell) touch(mtime int64) {
	v := a.Attr()
	v.Mtime = mtime
	a.set(v)
}

// values returns the attributes as the columns mode, uid, gid, mtime.
func (a Attr) values() []driver.Value {
	return []driver.Value{int64(a.Mode), int64(a.UID), int64(a.GID), a.Mtime}
}

// attrOf is the inverse of values.
func attrOf(row []driver.Value) Attr {
	return Attr{
		Mode:  uint32(row[0].(int64)),
		UID:   uint32(row[1].(int64)),
		GID:   uint32(row[2].(int64)),
		Mtime: row[3].(int64),
	}
}

// The functions that change attributes give what is there to change, with the
// writer's lock held, and take what it returns: two changes at once are both made.
// It must not use the index.

// SetModelAttr changes the attributes of a model.
func (x *Index) SetModelAttr(m *Model, change func(Attr) Attr) error {
	return x.setAttr("UPDATE models SET mode = ?, uid = ?, gid = ?, mtime = ? WHERE id = ?",
		uint64(m.ID), &m.attrCell, change, m.set)
}

// SetIdentityAttr changes the attributes of an identity.
func (x *Index) SetIdentityAttr(i *Identity, change func(Attr) Attr) error {
	return x.setAttr("UPDATE identities SET mode = ?, uid = ?, gid = ?, mtime = ? WHERE id = ?",
		uint64(i.ID), &i.attrCell, change, i.set)
}

// SetGenerationAttr changes the attributes of a generation's directory.
func (x *Index) SetGenerationAttr(g *Generation, change func(Attr) Attr) error {
	return x.setAttr("UPDATE generations SET mode = ?, uid = ?, gid = ?, mtime = ?, blob = 0 WHERE id = ?",
		uint64(g.ID), &g.attrCell, change, func(a Attr) {
			g.set(a)
			x.blobStale(g)
		})
}

// SetPageAttr changes the attributes of a page, in all its generations.
func (x *Index) SetPageAttr(p *Page, change func(Attr) Attr) error {
	return x.setAttr("UPDATE pages SET mode = ?, uid = ?, gid = ?, mtime = ? WHERE id = ?",
		uint64(p.ID), &p.attrCell, change, func(a Attr) { x.pages.setAttr(p.ID, a) })
}

// setAttr is ErrNotExist if the object is not there any more.
func (x *Index) setAttr(text string, id uint64, now *attrCell, change func(Attr) Attr, apply func(Attr)) error {
	var a Attr
	return x.update("setting attributes", 0, func(tx *conn) error {
		a = change(now.Attr())
		n, err := tx.exec(text, append(a.values(), int64(id))...)
		if err == nil && n == 0 {
			return fmt.Errorf("object %d: %w", id, ErrNotExist)
		}
		return err
	}, func() { apply(a) })
}

// SubAttr is the attributes of something below a generation that has no row
// of its own: a rank, a group, the manifest. Sub is chosen by the caller.
type SubAttr struct {
	Sub  uint64
	Attr Attr
}

// sortedSubAttrs returns a copy in the order of Sub.
func sortedSubAttrs(attrs []SubAttr) []SubAttr {
	sorted := slices.Clone(attrs)
	slices.SortFunc(sorted, func(a, b SubAttr) int { return cmp.Compare(a.Sub, b.Sub) })
	return sorted
}

// encodeSubAttrs writes attributes in the order of Sub, as differences: most
// of them were made by one process within a second.
func encodeSubAttrs(attrs []SubAttr) []byte {
	b := []byte{} // not nil, which would be NULL
	var last SubAttr
	for _, s := range sortedSubAttrs(attrs) {
		b = binary.AppendUvarint(b, s.Sub-last.Sub)
		b = binary.AppendUvarint(b, uint64(s.Attr.Mode))
		b = binary.AppendUvarint(b, uint64(s.Attr.UID))
		b = binary.AppendUvarint(b, uint64(s.Attr.GID))
		b = binary.AppendVarint(b, s.Attr.Mtime-last.Attr.Mtime)
		last = s
	}
	return b
}

// decodeSubAttrs is the inverse of encodeSubAttrs.
func decodeSubAttrs(b []byte) ([]SubAttr, error) {
	var attrs []SubAttr
	var last SubAttr
	for len(b) > 0 {
		var v [4]uint64
		for i := range v {
			n := 0
			if v[i], n = binary.Uvarint(b); n <= 0 {
				return nil, corruptf("attributes end in the middle")
			}
			b = b[n:]
		}
		mtime, n := binary.Varint(b)
		if n <= 0 {
			return nil, corruptf("attributes end in the middle")
		}
		b = b[n:]
		last.Sub += v[0]
		last.Attr = Attr{Mode: uint32(v[1]), UID: uint32(v[2]), GID: uint32(v[3]), Mtime: last.Attr.Mtime + mtime}
		attrs = append(attrs, last)
	}
	return attrs, nil
}
