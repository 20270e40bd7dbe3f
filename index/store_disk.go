package index

import (
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

// DiskBytes returns what SetDiskBytes kept last: what the disk tier held when it
// was closed.
func (x *Index) DiskBytes() (n int64, err error) {
	err = x.update("reading the disk tier's fill", 0, func(tx *conn) error {
		n, err = tx.integer("SELECT value FROM meta WHERE name = 'disk_bytes'")
		return err
	}, nil)
	return n, err
}

// SetDiskBytes keeps what the disk tier holds.
func (x *Index) SetDiskBytes(n int64) error {
	return x.update("keeping the disk tier's fill", 0, func(tx *conn) error {
		_, err := tx.exec("UPDATE meta SET value = ? WHERE name = 'disk_bytes'", n)
		return err
	}, nil)
}
