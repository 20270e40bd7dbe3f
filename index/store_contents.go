package index

import (
	"cmp"
	"database/sql/driver"
	"fmt"
	"slices"

	"ckptfs/pages"
)

// Contents is what a generation consists of. Nobody changes it once it is
// published.
type Contents struct {
	Manifest []byte // the published manifest.json
	Layout   *Layout
	Pages    []pages.ID // by slot

	attrs []SubAttr // ascending by Sub
}

// bytes is about what it takes in memory.
func (c *Contents) bytes() int64 {
	n := int64(len(c.Manifest)) + 8*int64(len(c.Pages)) + 32*int64(len(c.attrs)) + 512
	for i := range c.Layout.Groups {
		n += 256 + 4*int64(len(c.Layout.Groups[i].Positions))
	}
	return n
}

// Contents returns the contents of a generation, from memory or with one read.
// ErrNotExist if it has been retired, or is being retired at this moment, and
// they are not in memory any more.
func (x *Index) Contents(g *Generation) (*Contents, error) {
	c, epoch := x.contents.get(g.ID)
	if c != nil {
		return c, nil
	}
	var row contentsRow
	err := x.readers.read(func(c *conn) (err error) {
		row, err = readContents(c, g.ID)
		return err
	})
	if err == nil {
		c, err = x.unpack(g, row)
	}
	if err != nil {
		return nil, fmt.Errorf("index: contents of %s: %w", g.Name, err)
	}
	x.contents.put(g.ID, c, epoch)
	return c, nil
}

// SubAttr returns the attributes that were set of something below a
// generation, false if none were, or they can't be read.
func (x *Index) SubAttr(g *Generation, sub uint64) (Attr, bool) {
	c, err := x.Contents(g)
	if err != nil {
		return Attr{}, false
	}
	at, ok := findSubAttr(c.attrs, sub)
	if !ok {
		return Attr{}, false
	}
	return c.attrs[at].Attr, true
}

// SetSubAttr changes the attributes of something below a generation; where none
// were set, the generation's. ErrNotExist if the generation has been retired.
func (x *Index) SetSubAttr(g *Generation, sub uint64, change func(Attr) Attr) error {
	return x.update("setting attributes", 0, func(tx *conn) error {
		row, err := readContents(tx, g.ID)
		if err != nil {
			return err
		}
		attrs, err := decodeSubAttrs(row.attrs)
		if err != nil {
			return err
		}
		if at, ok := findSubAttr(attrs, sub); ok {
			attrs[at].Attr = change(attrs[at].Attr)
		} else {
			attrs = slices.Insert(attrs, at, SubAttr{sub, change(g.Attr())})
		}
		if _, err := tx.exec("UPDATE contents SET attrs = ? WHERE generation = ?", encodeSubAttrs(attrs), int64(g.ID)); err != nil {
			return err
		}
		_, err = tx.exec("UPDATE generations SET blob = 0 WHERE id = ?", int64(g.ID))
		return err
	}, func() {
		x.contents.drop(g.ID)
		x.blobStale(g)
	})
}

func findSubAttr(attrs []SubAttr, sub uint64) (int, bool) {
	return slices.BinarySearchFunc(attrs, sub, func(s SubAttr, sub uint64) int {
		return cmp.Compare(s.Sub, sub)
	})
}

// contentsRow is a row of the table contents.
type contentsRow struct{ manifest, pages, attrs []byte }

func readContents(c *conn, id ObjectID) (contentsRow, error) {
	var r contentsRow
	found := false
	err := c.query("SELECT manifest, pages, attrs FROM contents WHERE generation = ?", func(row []driver.Value) error {
		found = true
		r.manifest, _ = row[0].([]byte)
		r.pages, _ = row[1].([]byte)
		r.attrs, _ = row[2].([]byte)
		return nil
	}, int64(id))
	if err == nil && !found {
		err = ErrNotExist
	}
	return r, err
}

// unpack makes contents of a row.
func (x *Index) unpack(g *Generation, r contentsRow) (*Contents, error) {
	var c Contents
	var err error
	if c.Manifest, err = x.zstd.decode(r.manifest); err != nil {
		return nil, corruptf("the manifest can't be decompressed: %v", err)
	}
	m, err := ParseManifest(c.Manifest)
	if err != nil {
		return nil, corruptf("the manifest: %v", err)
	}
	if m.Published == nil {
		return nil, corruptf("the manifest is not a published one")
	}
	c.Layout = m.Layout(m.Published.WorldSize)
	if c.Pages, err = decodePageList(r.pages); err != nil {
		return nil, err
	}
	if len(c.Pages) != c.Layout.Total() || len(c.Pages) != g.PageCount {
		return nil, corruptf("it has %d pages, its manifest %d, its row %d", len(c.Pages), c.Layout.Total(), g.PageCount)
	}
	c.attrs, err = decodeSubAttrs(r.attrs)
	return &c, err
}
