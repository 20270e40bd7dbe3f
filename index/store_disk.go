package index

import (
	"database/sql/driver"
	"fmt"

	"ckptfs/pages"
)

// DiskChange says what a page's object takes in the disk tier from now on.
type DiskChange struct {
	ID    pages.ID
	Bytes int64 // real bytes; 0: it has none
}

// SetDisk records which pages have objects in the disk tier, in one
// transaction. It returns the pages that have no row any more: their objects
// are the caller's to remove.
func (x *Index) SetDisk(changes []DiskChange) (gone []pages.ID, err error) {
	err = x.update("recording disk copies", 0, func(tx *conn) error {
		gone = nil
		for _, c := range changes {
			n, err := tx.exec("UPDATE pages SET disk = ? WHERE id = ?", c.Bytes, int64(c.ID))
			if err != nil {
				return err
			}
			if n == 0 {
				gone = append(gone, c.ID)
			}
		}
		return nil
	}, func() {
		for _, c := range changes {
			x.pages.setDisk(c.ID, c.Bytes)
		}
	})
	return gone, err
}

// DiskBytes returns what SetDiskBytes kept last.
func (x *Index) DiskBytes() (n int64, err error) {
	err = x.update("reading the disk tier's fill", 0, func(tx *conn) error {
		n, err = tx.integer("SELECT value FROM meta WHERE name = 'disk_bytes'")
		return err
	}, nil)
	return n, err
}

// SetDiskBytes keeps what the contents of the disk tier take, for the next start,
// which counts nothing before it serves.
func (x *Index) SetDiskBytes(n int64) error {
	return x.noteDown("keeping the disk tier's fill", func(tx *conn) error {
		_, err := tx.exec("UPDATE meta SET value = ? WHERE name = 'disk_bytes'", n)
		return err
	})
}

// RAMOnlyPages lists the pages that no record says to be on disk, whatever links
// them. Its cost is theirs, not that of all pages.
func (x *Index) RAMOnlyPages() ([]pages.ID, error) {
	var ids []pages.ID
	err := x.update("looking for pages without a disk copy", 0, func(tx *conn) error {
		return tx.query("SELECT id FROM pages WHERE disk = 0", func(row []driver.Value) error {
			ids = append(ids, pages.ID(row[0].(int64)))
			return nil
		})
	}, nil)
	return ids, err
}

// Pages returns the page of each id, nil where there is none, with one read for
// all that nobody has used for long.
func (x *Index) Pages(ids []pages.ID) ([]*Page, error) {
	found := make([]*Page, len(ids))
	var missing []pages.ID
	var at []int
	for n, id := range ids {
		if found[n] = x.pages.get(id); found[n] == nil {
			missing, at = append(missing, id), append(at, n)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	loaded, err := x.loadPages(missing)
	if err != nil {
		return nil, fmt.Errorf("index: reading pages: %w", err)
	}
	for n, p := range loaded {
		found[at[n]] = p
	}
	return found, nil
}
