package index

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"ckptfs/pages"
)

// Publication is a complete staging that is to become a generation.
type Publication struct {
	ID        ObjectID // of the staging; the generation keeps it
	Identity  *Identity
	Manifest  *Manifest
	Derived   *Derived
	Contents  *Contents // Publish replaces ids in Pages; see there
	NewPages  []NewPage
	Attr      Attr // of the generation's directory
	SubAttrs  []SubAttr
	Published int64 // now, nanoseconds since 1970; becomes the identity's mtime too
	Used      int64 // recency; 0: the latest
	Op        Op

	// Linked, if it is not nil, is called with the pages that the generation has,
	// when that is committed and nothing else can be meanwhile. It must not call
	// the index, nor wait for anybody who does.
	Linked func([]pages.ID)

	// Prefixes are generations whose tokens are a proper prefix of this one's,
	// published ones and such as may be by now; ids of others are ignored.
	Prefixes []ObjectID
	// Supersede is the rule of supersession; nil: nothing is superseded.
	Supersede Rule
	// Kin is filled by Publish: what the rule said.
	Kin Kinship
}

// NewPage is a page that has no row yet.
type NewPage struct {
	ID    pages.ID
	Key   pages.Key
	Bytes int64
	Attr  Attr
}

// Publish makes a generation of a publication, in one transaction, and then
// visible by name, in the listing and to Find at one instant.
//
// If a new page's key has a row by now, that page is used, the new one is not:
// its id is replaced in Contents.Pages, and replaced tells by which. (It is
// only told, and Contents changed, if there is no error.)
//
// The error is ErrExist if the generation is published, ErrNotExist if the
// identity or a page that is no new one is gone, and ErrNoDocument if the identity
// has no document any more.
func (x *Index) Publish(p *Publication) (g *Generation, replaced map[pages.ID]pages.ID, err error) {
	if err := p.check(); err != nil {
		return nil, nil, fmt.Errorf("index: publishing: %w", err)
	}
	g = newGeneration(p)
	manifest := x.zstd.encode(p.Contents.Manifest)
	var inserted []PageRow
	var linked map[pages.ID]int32
	var final []pages.ID
	var kin kinship
	var gained int64 // bytes of pages that no generation linked before
	err = x.update("publishing "+g.Name, p.Op, func(tx *conn) error {
		if p.Identity.gone {
			return fmt.Errorf("identity %s: %w", p.Identity.Name, ErrNotExist)
		}
		if p.Identity.Document() == nil {
			return fmt.Errorf("identity %s: %w", p.Identity.Name, ErrNoDocument)
		}
		if p.Identity.Generation(g.Name) != nil {
			return ErrExist
		}
		if replaced, err = x.pagesThere(tx, p.NewPages); err != nil {
			return err
		}
		final = replacePages(p.Contents.Pages, replaced)
		if inserted, linked, gained, err = storeLinks(tx, p.NewPages, replaced, final); err != nil {
			return err
		}
		g.seq = x.nextSeq
		if x.recency.seen(p.Used); p.Used == 0 {
			g.used.Store(x.recency.tick(p.Published))
		}
		kin = x.kinOf(g, p)
		if err := errors.Join(storeStates(tx, kin.changes), storeHistory(tx, kin.events(g))); err != nil {
			return err
		}
		if _, err := tx.exec(insertGeneration, g.values()...); err != nil {
			return err
		}
		_, err := tx.exec("INSERT INTO contents VALUES (?, ?, ?, ?)",
			int64(g.ID), manifest, encodePageList(final), encodeSubAttrs(p.SubAttrs))
		if err != nil {
			return err
		}
		_, err = tx.exec("UPDATE identities SET mtime = ? WHERE id = ?", p.Published, int64(p.Identity.ID))
		return err
	}, func() {
		x.nextSeq++
		p.Contents.Pages = final
		if p.Linked != nil {
			p.Linked(final)
		}
		x.keys.add(inserted)
		for n := range inserted {
			x.pages.changed(&inserted[n])
		}
		for id, links := range linked {
			x.pages.setLinks(id, links)
		}
		x.contents.published(g.ID, &Contents{
			Manifest: p.Contents.Manifest, Layout: p.Contents.Layout, Pages: final, attrs: sortedSubAttrs(p.SubAttrs),
		})
		p.Identity.touch(p.Published)
		x.usage.add(p.Identity.ID, gained)
		applyStates(kin.changes)
		p.Kin = kin.Kinship
		x.addGeneration(g)
		x.linkers.add(g, final)
	})
	if err != nil {
		return nil, nil, err
	}
	return g, replaced, nil
}

// check refuses a publication that makes no sense: a mistake of the caller.
func (p *Publication) check() error {
	c := p.Contents
	switch {
	case p.ID == 0:
		return errors.New("it has no id")
	case len(c.Pages) != c.Layout.Total():
		return fmt.Errorf("it has %d pages, its layout %d", len(c.Pages), c.Layout.Total())
	}
	for slot, id := range c.Pages {
		if id == 0 {
			return fmt.Errorf("slot %d has no page", slot)
		}
	}
	return nil
}

func newGeneration(p *Publication) *Generation {
	g := &Generation{
		ID:             p.ID,
		Identity:       p.Identity,
		Name:           p.Derived.Name,
		Kind:           p.Manifest.Kind,
		NumTokens:      p.Manifest.NumTokens,
		DraftPrefixLen: p.Manifest.DraftPrefixLen,
		Digest:         p.Derived.GenerationDigest,
		Prefix:         p.Derived.Prefix,
		TailHash:       p.Derived.TailHash,
		HasTail:        p.Derived.HasTail,
		Published:      p.Published,
		PageCount:      len(p.Contents.Pages),
		PageBytes:      p.Contents.Layout.Bytes(),
		ManifestBytes:  int64(len(p.Contents.Manifest)),
	}
	g.setRequest(p.Manifest.Request)
	g.used.Store(p.Used)
	g.set(p.Attr)
	return g
}

// pagesThere returns, for the new pages whose key has a page by now (or had
// one before in the list), the id of that page.
func (x *Index) pagesThere(tx *conn, added []NewPage) (map[pages.ID]pages.ID, error) {
	replaced := make(map[pages.ID]pages.ID)
	keys := make([]pages.Key, len(added))
	first := make(map[pages.Key]pages.ID, len(added))
	for n := range added {
		keys[n] = added[n].Key
		if id, ok := first[keys[n]]; ok {
			replaced[added[n].ID] = id
		} else {
			first[keys[n]] = added[n].ID
		}
	}
	var candidates []pages.ID
	for _, id := range x.keys.lookup(keys) {
		if id != 0 {
			candidates = append(candidates, id)
		}
	}
	if len(candidates) == 0 {
		return replaced, nil
	}
	there := make(map[pages.Key]pages.ID, len(candidates))
	err := pageRows(tx, func(r PageRow) error { there[r.Key] = r.ID; return nil }, selectPages, idList(candidates))
	for n := range added {
		if id, ok := there[added[n].Key]; ok {
			replaced[added[n].ID] = id
		}
	}
	return replaced, err
}

func replacePages(ids []pages.ID, replaced map[pages.ID]pages.ID) []pages.ID {
	final := make([]pages.ID, len(ids))
	for slot, id := range ids {
		if other, ok := replaced[id]; ok {
			id = other
		}
		final[slot] = id
	}
	return final
}

// storeLinks inserts the new pages that are not replaced, and counts a link of
// every page for each slot that it has in final. It returns the inserted rows,
// the links that the others have now, and the bytes of those that had none before.
func storeLinks(tx *conn, added []NewPage, replaced map[pages.ID]pages.ID, final []pages.ID) (inserted []PageRow, linked map[pages.ID]int32, gained int64, err error) {
	links := countLinks(final)
	inserted = make([]PageRow, 0, len(added))
	for n := range added {
		a := &added[n]
		if _, ok := replaced[a.ID]; ok {
			continue
		}
		r := PageRow{ID: a.ID, Key: a.Key, Bytes: a.Bytes, Links: links[a.ID], Attr: a.Attr}
		inserted = append(inserted, r)
		gained += r.Bytes
		delete(links, a.ID)
	}
	if err := insertPages(tx, inserted); err != nil {
		return nil, nil, 0, err
	}
	if err := storeKeys(tx, inserted, nil); err != nil {
		return nil, nil, 0, err
	}
	linked = make(map[pages.ID]int32, len(links))
	err = addLinks(tx, links, +1, "id, links, bytes", func(row []driver.Value) error {
		id, n := pages.ID(row[0].(int64)), int32(row[1].(int64))
		if linked[id] = n; n == links[id] {
			gained += row[2].(int64)
		}
		return nil
	})
	if err != nil {
		return nil, nil, 0, err
	}
	for id := range links {
		if _, ok := linked[id]; !ok {
			return nil, nil, 0, fmt.Errorf("page %d: %w", id, ErrNotExist)
		}
	}
	return inserted, linked, gained, nil
}

// insertedAtOnce is how many rows of pages one statement inserts.
const insertedAtOnce = 16

// insertOnePage and insertManyPages insert rows that are not on disk yet.
const insertOnePage = "INSERT INTO pages VALUES " + pageValues

const pageValues = "(?, ?, ?, ?, ?, ?, ?, ?, 0)"

var insertManyPages = insertOnePage + strings.Repeat(", "+pageValues, insertedAtOnce-1)

// appendPageValues appends what pageValues stands for.
func appendPageValues(to []driver.Value, r *PageRow) []driver.Value {
	return append(append(to, int64(r.ID), r.Key[:], r.Bytes, int64(r.Links)), r.Attr.values()...)
}

// insertPages inserts rows that are not on disk yet.
func insertPages(tx *conn, rows []PageRow) error {
	args := make([]driver.Value, 0, 8*insertedAtOnce)
	for ; len(rows) >= insertedAtOnce; rows = rows[insertedAtOnce:] {
		args = args[:0]
		for n := range rows[:insertedAtOnce] {
			args = appendPageValues(args, &rows[n])
		}
		if _, err := tx.exec(insertManyPages, args...); err != nil {
			return err
		}
	}
	for n := range rows {
		if err := insertPage(tx, &rows[n]); err != nil {
			return err
		}
	}
	return nil
}

// insertPage inserts a row that is not on disk yet.
func insertPage(tx *conn, r *PageRow) error {
	_, err := tx.exec(insertOnePage, appendPageValues(nil, r)...)
	return err
}

// countLinks counts in how many slots each page is.
func countLinks(ids []pages.ID) map[pages.ID]int32 {
	links := make(map[pages.ID]int32, len(ids))
	for _, id := range ids {
		links[id]++
	}
	return links
}

// addLinks adds sign times the count to the links of each page, and calls each
// with the columns of every page that is there.
func addLinks(tx *conn, counts map[pages.ID]int32, sign int64, columns string, each func([]driver.Value) error) error {
	byCount := make(map[int32][]pages.ID) // nearly all have 1
	for id, n := range counts {
		byCount[n] = append(byCount[n], id)
	}
	for n, ids := range byCount {
		err := tx.query("UPDATE pages SET links = links + ? WHERE id IN (SELECT value FROM json_each(?)) RETURNING "+columns,
			each, sign*int64(n), idList(ids))
		if err != nil {
			return err
		}
	}
	return nil
}
