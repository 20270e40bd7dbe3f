package index

import (
	"encoding/hex"
	"fmt"
)

// Digest is a SHA-256: of an identity document, of a prefix of tokens
// (root(i) and D(n) of the format), or of a generation.
type Digest [32]byte

// shortDigits is how many hex digits of a digest stand in a directory's name.
const shortDigits = 40

// Hex returns the digest as 64 lower-case hex digits.
func (d Digest) Hex() string { return hex.EncodeToString(d[:]) }

// String is Hex.
func (d Digest) String() string { return d.Hex() }

// Short returns the first 40 hex digits, the form used in directory names.
func (d Digest) Short() string { return hex.EncodeToString(d[:shortDigits/2]) }

// ParseDigest reads the form that Hex writes, and only that: 64 lower-case
// hex digits.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) || !isLowerHex(s) {
		return Digest{}, fmt.Errorf("digest %.80q: want %d lower-case hex digits", s, 2*len(d))
	}
	hex.Decode(d[:], []byte(s)) // can't fail: only hex digits, the right number
	return d, nil
}

// isRevisionDigest reports whether s is 40 or 64 hex digits of either case.
// Digests that users write are authenticated as written, so two spellings of
// one digest are two contents: that loses sharing, never correctness.
func isRevisionDigest(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for i := range len(s) {
		c := s[i] | 0x20 // letters to lower case; digits have this bit already
		if !(s[i] >= '0' && s[i] <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}
