package index

import "encoding/binary"

// The tail of a prefix is what follows its last root: 1 to HashUnit tokens.
// The index finds a generation by its root and then by a cheap hash of its
// tail; the digest of the prefix decides. The hash is stored, so it is part
// of the index's format.

const (
	tailSeed = 0x636b707466733031 // "ckptfs01"
	tailStep = 0x9e3779b97f4a7c15 // 2^64 / golden ratio, odd
)

// tailHasher hashes a tail token by token, so that one pass over a unit gives
// the hash of each of its 1..HashUnit beginnings. The zero value has no token.
type tailHasher struct {
	state uint64
	count uint64
}

// Add appends a token and returns the hash of all tokens so far. Each step is
// a bijection of the state (the finalizer of splitmix64), so two tails of one
// length collide only by chance.
func (t *tailHasher) Add(token uint32) uint64 {
	t.count++
	x := t.state ^ tailSeed
	x += (t.count<<32 | uint64(token)) * tailStep
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	t.state = x ^ x>>31
	return t.state
}

// TailHash returns the hash of a tail, unsigned 32-bit little-endian tokens.
func TailHash(tokens []byte) uint64 {
	var t tailHasher
	for ; len(tokens) >= tokenBytes; tokens = tokens[tokenBytes:] {
		t.Add(binary.LittleEndian.Uint32(tokens))
	}
	return t.state
}
