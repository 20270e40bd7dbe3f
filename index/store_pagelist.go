package index

import (
	"encoding/binary"
	"strconv"

	"ckptfs/pages"
)

// encodePageList writes the ids of a generation's pages, by slot, as
// differences: those of one rank were mostly made one after the other.
func encodePageList(ids []pages.ID) []byte {
	b := binary.AppendUvarint(nil, uint64(len(ids)))
	last := pages.ID(0)
	for _, id := range ids {
		b = binary.AppendVarint(b, int64(id-last))
		last = id
	}
	return b
}

// decodePageList is the inverse of encodePageList.
func decodePageList(b []byte) ([]pages.ID, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > MaxPages {
		return nil, corruptf("a page list has no valid count")
	}
	b = b[n:]
	ids := make([]pages.ID, 0, min(count, uint64(len(b))))
	last := pages.ID(0)
	for range count {
		d, n := binary.Varint(b)
		if n <= 0 {
			return nil, corruptf("a page list ends before its count of %d", count)
		}
		b = b[n:]
		last += pages.ID(d)
		ids = append(ids, last)
	}
	if len(b) > 0 {
		return nil, corruptf("a page list goes on after its count of %d", count)
	}
	return ids, nil
}

// idList writes ids as a JSON array, the form in which a statement takes a
// list of any length (json_each).
func idList[T ~uint64](ids []T) string {
	b := make([]byte, 0, 2+12*len(ids))
	b = append(b, '[')
	for n, id := range ids {
		if n > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return string(append(b, ']'))
}
