package evict

import (
	"context"
	"errors"
	"fmt"

	"ckptfs/index"
	"ckptfs/pages"
)

// Finding is one contradiction in a store.
type Finding struct {
	Kind FindingKind
	Text string
}

// FindingKind says what a Finding is about.
type FindingKind string

// The kinds. Leftovers are what a crash may leave; the next start clears them.
const (
	FindIndex     FindingKind = "index"           // the index contradicts itself
	FindHole      FindingKind = "hole"            // a published page has no copy
	FindObject    FindingKind = "object"          // an object in the disk tier is bad
	FindRAM       FindingKind = "ram"             // a page file has the wrong size
	FindRecord    FindingKind = "record"          // the index records an object that is not there
	FindBytes     FindingKind = "bytes"           // bytes are counted wrong
	FindBlob      FindingKind = "blob"            // a blob is missing, bad or contradicts the index
	FindForgotten FindingKind = "forgotten"       // a blob of a generation that the index does not have
	FindForeign   FindingKind = "foreign"         // something that is none of the store's
	FindUnsure    FindingKind = "unsure"          // something could not be looked at
	FindOrphan    FindingKind = "leftover object" // a page that nothing needs
	FindLeftRAM   FindingKind = "leftover page"
	FindLeftRow   FindingKind = "leftover row"
	FindUnsaved   FindingKind = "leftover generation" // its RAM copies have gone, it was never written
	FindNoBlob    FindingKind = "leftover blob"       // a generation has none, and should have
)

// Leftover reports whether a crash may leave this, and the next start clears it.
func (k FindingKind) Leftover() bool {
	switch k {
	case FindOrphan, FindLeftRAM, FindLeftRow, FindUnsaved, FindNoBlob:
		return true
	}
	return false
}

func (f Finding) String() string { return string(f.Kind) + ": " + f.Text }

// Store is what Check looks at.
type Store struct {
	Index *index.Index
	RAM   *pages.RAM  // nil: there is none now
	Disk  *pages.Disk // nil: likewise

	// Staged reports whether a staging has the page, which then needs no row,
	// or keeps a row without links. nil: there are no stagings.
	Staged func(pages.ID) bool
	// Verify has the bytes of every object checked, not only its header.
	Verify bool
}

// Check walks RAM, disk and index and returns every contradiction between them.
// Nothing is changed, except that with Verify a bad object of a tier that is
// open for writing is moved away. Nobody may be using the store.
func Check(ctx context.Context, s Store) ([]Finding, error) {
	c := checker{
		Store: s, rows: map[pages.ID]*index.PageRow{}, byKey: map[pages.Key]*index.PageRow{},
		inRAM: map[pages.ID]bool{}, onDisk: map[pages.Key]int64{}, lost: map[pages.ID]bool{},
	}
	for _, p := range s.Index.Check() {
		c.found(FindIndex, "%s", p)
	}
	for _, look := range []func(context.Context) error{c.readRows, c.ram, c.disk, c.pages, c.generations, c.blobs} {
		if err := look(ctx); err != nil {
			return c.findings, err
		}
	}
	return c.findings, nil
}

type checker struct {
	Store
	rows     map[pages.ID]*index.PageRow
	byKey    map[pages.Key]*index.PageRow
	inRAM    map[pages.ID]bool
	onDisk   map[pages.Key]int64 // real bytes of sound objects
	lost     map[pages.ID]bool
	unsure   bool // some objects could not be looked at
	findings []Finding
}

func (c *checker) found(k FindingKind, format string, args ...any) {
	c.findings = append(c.findings, Finding{k, fmt.Sprintf(format, args...)})
}

func (c *checker) staged(id pages.ID) bool { return c.Staged != nil && c.Staged(id) }

func (c *checker) readRows(context.Context) error {
	return c.Index.EachPage(func(r index.PageRow) error {
		c.rows[r.ID], c.byKey[r.Key] = &r, &r
		return nil
	})
}

func (c *checker) ram(context.Context) error {
	if c.RAM == nil {
		return nil
	}
	err := c.RAM.Each(func(id pages.ID, st pages.Stat) error {
		switch r := c.rows[id]; {
		case r == nil && !c.staged(id):
			c.found(FindLeftRAM, "page %d in RAM has no row and no staging", id)
		case r != nil && st.Bytes != r.Bytes:
			c.found(FindRAM, "page %d in RAM has %d bytes, its row %d", id, st.Bytes, r.Bytes)
		case r != nil:
			c.inRAM[id] = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("RAM tier: %w", err)
	}
	return c.RAM.EachForeign(func(path string) error {
		c.found(FindForeign, "%s is no page", path)
		return nil
	})
}

func (c *checker) disk(ctx context.Context) error {
	if c.Disk == nil {
		return nil
	}
	err := c.Disk.Each(ctx, func(o pages.ObjectInfo) error {
		err := o.Err
		if err == nil && c.Verify {
			err = c.Disk.Verify(ctx, o.Key)
		}
		switch r := c.byKey[o.Key]; {
		case errors.Is(err, pages.ErrLost):
			c.found(FindObject, "%v", err)
		case err != nil:
			c.unsure = true
			c.found(FindUnsure, "object %v: %v", o.Key, err)
		case r == nil:
			c.found(FindOrphan, "object %v has no row", o.Key)
		case o.RawBytes != r.Bytes:
			c.found(FindObject, "object %v is of a page of %d bytes, its row says %d", o.Key, o.RawBytes, r.Bytes)
		default:
			c.onDisk[o.Key] = o.StoredBytes
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("disk tier: %w", err)
	}
	return c.Disk.EachForeign(ctx, func(rel string) error {
		c.found(FindForeign, "%s in the disk tier is neither an object nor a blob", rel)
		return nil
	})
}

// pages looks for the copies of every row.
func (c *checker) pages(context.Context) error {
	for id, r := range c.rows {
		stored, there := c.onDisk[r.Key]
		switch {
		case r.Links == 0 && !c.staged(id):
			c.found(FindLeftRow, "page %d has no link", id)
		case r.Disk == 0 && there:
			c.found(FindOrphan, "page %d has an object that is not recorded", id)
		case r.Disk != 0 && !there && c.Disk != nil && !c.unsure:
			c.found(FindRecord, "page %d is recorded to be on disk, but has no sound object", id)
		case there && r.Disk != max(stored, 1):
			c.found(FindBytes, "page %d takes %d bytes on disk, recorded are %d", id, stored, r.Disk)
		}
		if !there && !c.inRAM[id] && !c.unsure {
			c.lost[id] = true
		}
	}
	return nil
}

func (c *checker) generations(context.Context) error {
	return c.Index.EachGeneration(func(g *index.Generation) error {
		ids, err := c.Index.PageIDs(g)
		if err != nil {
			c.found(FindUnsure, "generation %s: %v", g.Name, err)
			return nil
		}
		missing, kind := 0, FindUnsaved
		for _, id := range ids {
			if !c.lost[id] {
				continue
			}
			if missing++; c.rows[id].Disk != 0 {
				kind = FindHole
			}
		}
		if missing > 0 {
			c.found(kind, "generation %s of identity %s: %d of %d pages have no copy", g.Name, g.Identity.Name, missing, len(ids))
		}
		return nil
	})
}

// blobs compares them with the generations.
func (c *checker) blobs(ctx context.Context) error {
	if c.Disk == nil {
		return nil
	}
	have := map[string]bool{}
	err := c.Disk.EachBlob(ctx, func(name string, _ int64) error {
		have[name] = true
		if name != startsBlob {
			c.blob(name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("disk tier: %w", err)
	}
	return c.Index.EachGeneration(func(g *index.Generation) error {
		switch there := have[index.BlobName(g)]; {
		case g.HasBlob() && !there:
			c.found(FindNoBlob, "generation %s has no blob, the index says it has", g.Name) // killed while it was being retired
		case !there && c.wholeOnDisk(g):
			c.found(FindNoBlob, "generation %s is whole on disk and has no blob", g.Name)
		}
		return nil
	})
}

func (c *checker) blob(name string) {
	b, err := readBlob(c.Index, c.Disk, name)
	switch {
	case errors.Is(err, pages.ErrLost), errors.Is(err, index.ErrCorrupt):
		c.found(FindBlob, "blob %s: %v", name, err)
		return
	case err != nil:
		c.found(FindUnsure, "blob %s: %v", name, err)
		return
	}
	if g := c.Index.GenerationByID(b.ID); g == nil || index.BlobName(g) != name {
		if retired, err := c.Index.Remembers(b); err == nil && retired {
			c.found(FindOrphan, "blob %s is of a retired generation", name)
			return
		}
		c.found(FindForgotten, "blob %s is of a generation that the index does not have", name)
	}
}

func (c *checker) wholeOnDisk(g *index.Generation) bool {
	ids, err := c.Index.PageIDs(g)
	for _, id := range ids {
		if r := c.rows[id]; r == nil || r.Disk == 0 {
			return false
		}
	}
	return err == nil
}
