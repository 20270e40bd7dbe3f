// Package pages holds page bytes: the keys that name them, the RAM tier and
// the disk tier. It imports nothing else of this module.
package pages

import (
	"encoding/hex"
	"fmt"
)

// Key is the name of a page: the SHA-256 of its model and its content key, which
// is derived from everything the page's bytes depend on (identity, exact prefix,
// rank, group, position). Two pages with one key have the same bytes. The zero
// Key names no page.
type Key [32]byte

// String returns the key as 64 lower-case hex digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// ParseKey reads the form that String writes, and only that: 64 lower-case
// hex digits.
func ParseKey(s string) (Key, error) {
	var k Key
	if len(s) != 2*len(k) {
		return Key{}, fmt.Errorf("page key %.80q: want %d hex digits, have %d bytes", s, 2*len(k), len(s))
	}
	if _, err := hex.Decode(k[:], []byte(s)); err != nil || k.String() != s {
		return Key{}, fmt.Errorf("page key %q: want lower-case hex digits", s)
	}
	return k, nil
}

// ID is the persistent number of a stored page, which is also its inode
// number. An ID is never used for a second page; 0 is no page.
type ID uint64
