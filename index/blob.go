package index

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"

	"ckptfs/pages"
)

// Blob is all that is needed to make a generation's rows again. Stored in the
// disk tier beside the pages, it makes that describe itself. The page keys are
// not in it: they follow from the manifest, the identity and the model.
//
// Its form is one line of JSON (blobHead), the identity's document, and the
// published manifest (zstd).
type Blob struct {
	Model, Identity struct {
		ID   ObjectID
		Name string
		Attr Attr
	}
	DocumentAttr Attr
	Document     *Document

	ID           ObjectID
	Manifest     []byte // the published manifest.json
	Attr         Attr
	SubAttrs     []SubAttr
	Published    int64 // nanoseconds since 1970
	Used         int64 // likewise, when the blob was made
	State        State
	SupersededBy ObjectID
	Parent       ObjectID
	TailHash     uint64
	HasTail      bool

	Pages     []pages.ID // by slot
	PageAttrs []Attr     // likewise
}

// blobHead is the first line. What may be any bytes is base64.
type blobHead struct {
	Version      int       `json:"version"`
	Model        blobPlace `json:"model"`
	Identity     blobPlace `json:"identity"`
	DocumentAttr Attr      `json:"document_attr"`
	DocumentLen  int       `json:"document_bytes"`
	ID           ObjectID  `json:"id"`
	Generation   string    `json:"generation"` // its name, for people
	Attr         Attr      `json:"attr"`
	SubAttrs     []byte    `json:"sub_attrs,omitempty"` // as in the table contents
	Published    int64     `json:"published"`
	Used         int64     `json:"used"`
	State        State     `json:"state"`
	SupersededBy ObjectID  `json:"superseded_by,omitempty"`
	Parent       ObjectID  `json:"parent,omitempty"`
	Tail         *uint64   `json:"tail,omitempty"`
	Pages        []byte    `json:"pages"`      // as in the table contents
	PageAttrs    []byte    `json:"page_attrs"` // as attrs there; the key is the slot
}

type blobPlace struct {
	ID   ObjectID `json:"id"`
	Name []byte   `json:"name"`
	Attr Attr     `json:"attr"`
}

const blobVersion = 1

// BlobName is the name of the generation's blob.
func BlobName(g *Generation) string { return blobName(g.ID, g.Digest) }

// The id tells a generation from one with the same content in another model, or
// from a later one of the same name.
func blobName(id ObjectID, digest Digest) string {
	return fmt.Sprintf("%016x-%s", uint64(id), digest.Short())
}

// BlobID gives the generation's id that a blob's name begins with.
func BlobID(name string) (ObjectID, bool) {
	var id uint64
	n, err := fmt.Sscanf(name, "%016x-", &id)
	return ObjectID(id), n == 1 && err == nil
}

// Blob writes the generation's blob. ErrNotExist if a page has no row any more.
func (x *Index) Blob(g *Generation) ([]byte, error) {
	c, err := x.Contents(g)
	if err != nil {
		return nil, err
	}
	doc := g.Identity.Document()
	if doc == nil {
		return nil, fmt.Errorf("index: identity %s has no document: %w", g.Identity.Name, ErrNotExist)
	}
	rows, err := x.Pages(c.Pages)
	if err != nil {
		return nil, err
	}
	attrs := make([]SubAttr, len(rows))
	for slot, p := range rows {
		if p == nil {
			return nil, fmt.Errorf("index: page %d: %w", c.Pages[slot], ErrNotExist)
		}
		attrs[slot] = SubAttr{uint64(slot), p.Attr()}
	}
	i := g.Identity
	h := blobHead{
		Version:      blobVersion,
		Model:        blobPlace{i.Model.ID, []byte(i.Model.Name), i.Model.Attr()},
		Identity:     blobPlace{i.ID, []byte(i.Name), i.Attr()},
		DocumentAttr: i.DocumentAttr(), DocumentLen: len(doc.Doc),
		ID: g.ID, Generation: g.Name, Attr: g.Attr(), SubAttrs: encodeSubAttrs(c.attrs),
		Published: g.Published, Used: g.Used(), State: g.State(), SupersededBy: g.SupersededBy(), Parent: g.Parent,
		Pages: encodePageList(c.Pages), PageAttrs: encodeSubAttrs(attrs),
	}
	if g.HasTail {
		h.Tail = &g.TailHash
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("index: blob of %s: %w", g.Name, err)
	}
	head = append(append(head, '\n'), doc.Doc...)
	return append(head, x.zstd.encode(c.Manifest)...), nil
}

// ParseBlob is the inverse of Blob. The error is ErrCorrupt: it is no blob of
// this version.
func (x *Index) ParseBlob(raw []byte) (*Blob, error) {
	line, rest, ok := bytes.Cut(raw, []byte{'\n'})
	var h blobHead
	if err := json.Unmarshal(line, &h); !ok || err != nil {
		return nil, corruptf("a blob has no valid first line")
	}
	if h.Version != blobVersion || h.DocumentLen < 0 || h.DocumentLen > len(rest) {
		return nil, corruptf("a blob is of version %d, this program knows %d", h.Version, blobVersion)
	}
	b := &Blob{
		DocumentAttr: h.DocumentAttr, ID: h.ID, Attr: h.Attr, Published: h.Published, Used: h.Used,
		State: h.State, SupersededBy: h.SupersededBy, Parent: h.Parent, HasTail: h.Tail != nil,
	}
	b.Model.ID, b.Model.Name, b.Model.Attr = h.Model.ID, string(h.Model.Name), h.Model.Attr
	b.Identity.ID, b.Identity.Name, b.Identity.Attr = h.Identity.ID, string(h.Identity.Name), h.Identity.Attr
	if b.HasTail {
		b.TailHash = *h.Tail
	}
	var err error
	if b.Document, err = ParseDocument(rest[:h.DocumentLen]); err != nil {
		return nil, corruptf("the document in a blob: %v", err)
	}
	if b.Manifest, err = x.zstd.decode(rest[h.DocumentLen:]); err != nil {
		return nil, corruptf("the manifest in a blob can't be decompressed: %v", err)
	}
	if b.SubAttrs, err = decodeSubAttrs(h.SubAttrs); err != nil {
		return nil, err
	}
	if b.Pages, err = decodePageList(h.Pages); err != nil {
		return nil, err
	}
	attrs, err := decodeSubAttrs(h.PageAttrs)
	if err != nil {
		return nil, err
	}
	if len(attrs) != len(b.Pages) {
		return nil, corruptf("a blob has %d pages and attributes for %d", len(b.Pages), len(attrs))
	}
	for slot := range attrs {
		b.PageAttrs = append(b.PageAttrs, attrs[slot].Attr)
	}
	return b, nil
}

// SetBlob records that generations have their blobs, or may have none. Those
// that have been retired meanwhile are left out.
func (x *Index) SetBlob(gs []*Generation, has bool) error {
	return x.update("recording blobs", 0, func(tx *conn) error {
		for _, g := range gs {
			if _, err := tx.exec("UPDATE generations SET blob = ? WHERE id = ?", flag(has), int64(g.ID)); err != nil {
				return err
			}
		}
		return nil
	}, func() {
		for _, g := range gs {
			g.blob.Store(has)
		}
	})
}

// SetBlobWritten is SetBlob for a blob that was made when BlobVersion was version:
// one that has become stale since does not count.
func (x *Index) SetBlobWritten(g *Generation, version uint32) error {
	has := false
	return x.update("recording blobs", 0, func(tx *conn) error {
		if has = g.BlobVersion() == version; !has {
			return nil
		}
		_, err := tx.exec("UPDATE generations SET blob = 1 WHERE id = ?", int64(g.ID))
		return err
	}, func() {
		if has {
			g.blob.Store(true)
		}
	})
}

// StaleBlobs counts how often a change of attributes has made a blob stale.
func (x *Index) StaleBlobs() uint64 { return x.staleBlobs.Load() }

// blobStale is called after the commit of such a change.
func (x *Index) blobStale(g *Generation) {
	g.blobVersion.Add(1)
	g.blob.Store(false)
	x.staleBlobs.Add(1)
}

// PageIDs returns the pages of a generation by slot, without a look at its
// manifest. ErrNotExist as for Contents.
func (x *Index) PageIDs(g *Generation) (ids []pages.ID, err error) {
	if c, _ := x.contents.get(g.ID); c != nil {
		return c.Pages, nil
	}
	var raw []byte
	err = x.readers.read(func(c *conn) error {
		return c.query("SELECT pages FROM contents WHERE generation = ?", func(row []driver.Value) error {
			raw, _ = row[0].([]byte)
			return nil
		}, int64(g.ID))
	})
	if err == nil && raw == nil {
		err = ErrNotExist
	}
	if err == nil {
		ids, err = decodePageList(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("index: pages of %s: %w", g.Name, err)
	}
	return ids, nil
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
