package index

import (
	"database/sql/driver"

	"ckptfs/pages"
)

// UnlinkedPages lists the pages that have a row and no links. A running daemon
// keeps such rows for stagings only; it asks once, when it starts.
func (x *Index) UnlinkedPages() ([]pages.ID, error) {
	var ids []pages.ID
	err := x.update("looking for unlinked pages", 0, func(tx *conn) error {
		return tx.query("SELECT id FROM pages WHERE links = 0", func(row []driver.Value) error {
			ids = append(ids, pages.ID(row[0].(int64)))
			return nil
		})
	}, nil)
	return ids, err
}

// SubAttrs returns all attributes that were set below a generation.
func (x *Index) SubAttrs(g *Generation) map[uint64]Attr {
	c, err := x.Contents(g)
	if err != nil {
		return nil
	}
	subs := make(map[uint64]Attr, len(c.attrs))
	for _, a := range c.attrs {
		subs[a.Sub] = a.Attr
	}
	return subs
}
