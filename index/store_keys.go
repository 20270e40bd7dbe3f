package index

import (
	"database/sql/driver"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"ckptfs/pages"
)

// keyIndex finds pages by their content keys. It is in memory whole, 25 bytes
// a page, by the first 8 bytes of the key; who uses it compares the rest with
// the page itself.
//
// In the database it is the table keys: a row for every keyBlock ids. A
// B-tree over the keys, which are random, would have every new page dirty a
// leaf of its own, and those were two thirds of the time of a publication.
// New pages have ids that are close together.
type keyIndex struct {
	mu    sync.RWMutex
	ids   map[uint64]pages.ID
	clash map[pages.Key]pages.ID // keys whose first 8 bytes ids has for another key
}

const (
	keyBlock      = 1 << 10 // ids for each row of keys
	keyEntryBytes = 2 + 8   // u16 id % keyBlock, u64 of the key, little-endian
)

// keyEntry says that a page's key begins with these 8 bytes.
type keyEntry struct {
	id   pages.ID
	head uint64
}

func keyHead(k *pages.Key) uint64 { return binary.LittleEndian.Uint64(k[:]) }

// lookup returns the page of each key, 0 where there is none. The page may be
// one whose key only begins like it.
func (x *keyIndex) lookup(keys []pages.Key) []pages.ID {
	ids := make([]pages.ID, len(keys))
	x.mu.RLock()
	defer x.mu.RUnlock()
	for n := range keys {
		if id, ok := x.clash[keys[n]]; ok {
			ids[n] = id
		} else {
			ids[n] = x.ids[keyHead(&keys[n])]
		}
	}
	return ids
}

// add adds new pages, after the commit. The writer's lock is held.
func (x *keyIndex) add(rows []PageRow) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := range rows {
		head := keyHead(&rows[n].Key)
		if _, ok := x.ids[head]; ok {
			x.clash[rows[n].Key] = rows[n].ID
		} else {
			x.ids[head] = rows[n].ID
		}
	}
}

// remove takes pages out, after the commit. The writer's lock is held.
func (x *keyIndex) remove(rows []PageRow) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := range rows {
		if _, ok := x.clash[rows[n].Key]; ok {
			delete(x.clash, rows[n].Key)
		} else {
			delete(x.ids, keyHead(&rows[n].Key))
		}
	}
}

// storeKeys adds pages to the table keys and takes others out.
func storeKeys(tx *conn, added, removed []PageRow) error {
	changes := make(map[int64]map[pages.ID]*uint64) // by block; nil: to be removed
	note := func(id pages.ID, head *uint64) {
		b := int64(id / keyBlock)
		if changes[b] == nil {
			changes[b] = make(map[pages.ID]*uint64)
		}
		changes[b][id] = head
	}
	for n := range removed {
		note(removed[n].ID, nil)
	}
	for n := range added {
		head := keyHead(&added[n].Key)
		note(added[n].ID, &head)
	}
	for _, b := range slices.Sorted(maps.Keys(changes)) {
		if err := storeKeyBlock(tx, b, changes[b]); err != nil {
			return err
		}
	}
	return nil
}

func storeKeyBlock(tx *conn, block int64, changes map[pages.ID]*uint64) error {
	var entries []keyEntry
	err := tx.query("SELECT entries FROM keys WHERE block = ?", func(row []driver.Value) error {
		return decodeKeyBlock(block, row[0], func(e keyEntry) {
			if _, ok := changes[e.id]; !ok {
				entries = append(entries, e)
			}
		})
	}, block)
	if err != nil {
		return err
	}
	for id, head := range changes {
		if head != nil {
			entries = append(entries, keyEntry{id, *head})
		}
	}
	if len(entries) == 0 {
		_, err := tx.exec("DELETE FROM keys WHERE block = ?", block)
		return err
	}
	slices.SortFunc(entries, func(a, b keyEntry) int { return int(a.id) - int(b.id) })
	_, err = tx.exec("INSERT INTO keys VALUES (?1, ?2) ON CONFLICT (block) DO UPDATE SET entries = ?2",
		block, encodeKeyBlock(entries))
	return err
}

func encodeKeyBlock(entries []keyEntry) []byte {
	b := make([]byte, 0, len(entries)*keyEntryBytes)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, uint16(e.id%keyBlock))
		b = binary.LittleEndian.AppendUint64(b, e.head)
	}
	return b
}

func decodeKeyBlock(block int64, v driver.Value, each func(keyEntry)) error {
	b, _ := v.([]byte)
	if len(b) == 0 || len(b)%keyEntryBytes != 0 {
		return corruptf("block %d of the keys has %d bytes", block, len(b))
	}
	for ; len(b) > 0; b = b[keyEntryBytes:] {
		each(keyEntry{
			id:   pages.ID(block)*keyBlock + pages.ID(binary.LittleEndian.Uint16(b)),
			head: binary.LittleEndian.Uint64(b[2:]),
		})
	}
	return nil
}

// load reads the table. Keys that begin like another one, of which there is
// hardly ever one, it reads from the rows of pages.
func (x *keyIndex) load(c *conn) error {
	bytes, err := c.integer("SELECT sum(length(entries)) FROM keys")
	if err != nil {
		return err
	}
	x.ids = make(map[uint64]pages.ID, bytes/keyEntryBytes)
	x.clash = make(map[pages.Key]pages.ID)
	size := 0
	alike := make(map[uint64]bool)
	err = eachKeyBlock(c, func(e keyEntry) {
		x.ids[e.head] = e.id
		if len(x.ids) == size {
			alike[e.head] = true
		}
		size = len(x.ids)
	})
	if err != nil || len(alike) == 0 {
		return err
	}
	return x.loadAlike(c, alike)
}

// loadAlike reads the keys of pages whose keys begin like those of others.
func (x *keyIndex) loadAlike(c *conn, heads map[uint64]bool) error {
	var ids []pages.ID
	err := eachKeyBlock(c, func(e keyEntry) {
		if heads[e.head] {
			ids = append(ids, e.id)
		}
	})
	if err != nil {
		return err
	}
	return pageRows(c, func(r PageRow) error {
		if x.ids[keyHead(&r.Key)] != r.ID {
			x.clash[r.Key] = r.ID
		}
		return nil
	}, selectPages, idList(ids))
}

// eachKeyBlock reads all entries of the table.
func eachKeyBlock(c *conn, each func(keyEntry)) error {
	return c.query("SELECT block, entries FROM keys", func(row []driver.Value) error {
		return decodeKeyBlock(row[0].(int64), row[1], each)
	})
}
