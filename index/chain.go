package index

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sort"

	"ckptfs/pages"
)

const (
	// HashUnit is C of the format: the tokens between two roots.
	HashUnit = 256
	// MaxTokens bounds the tokens of a prefix or of a lookup.
	MaxTokens = 4 << 20
	// tokenBytes is the size of a token: unsigned 32-bit little-endian.
	tokenBytes = 4

	chainLabel = "ckptfs token chain v1\x00"
)

// Media is an image or the like whose placeholder tokens begin at token At.
// Digest is 40 or 64 hex digits, hashed as written.
type Media struct {
	At     uint32
	Digest string
}

// Prefix is what a generation's digests say about its tokens.
type Prefix struct {
	StartTokens int    // kC, the tokens that Root covers
	Root        Digest // root(k)
	Digest      Digest // D(n)
}

// startTokens returns kC, where k = ceil(n/C) - 1; n is at least 1.
func startTokens(n int) int { return (n - 1) / HashUnit * HashUnit }

// Root returns root(0), the beginning of an identity's chain: the SHA-256 of
// the label, the identity's full digest and the hash unit.
func Root(identity Digest) Digest {
	b := make([]byte, 0, len(chainLabel)+len(identity)+4)
	b = append(b, chainLabel...)
	b = append(b, identity[:]...)
	b = binary.LittleEndian.AppendUint32(b, HashUnit)
	return sha256.Sum256(b)
}

// Chain has the roots of a sequence of tokens under an identity: root(i) after
// each whole unit. It refers to the tokens that it was made from. Its methods
// may be called concurrently.
type Chain struct {
	tokens []byte
	media  []Media
	roots  []Digest
}

// NewChain hashes tokens (unsigned 32-bit little-endian, 1..MaxTokens, each
// below 2^31), once. media must be in increasing order of At. The error is an
// InvalidError; it does not quote tokens.
func NewChain(identity Digest, tokens []byte, media []Media) (*Chain, error) {
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	return buildChain(identity, tokens, media, nil), nil
}

// PrefixDigests returns D(n) for each n of ns, and the prefix of the last of
// them, hashing tokens once. Each n must be from 1 to the number of tokens.
// For tokens, media and errors see NewChain.
func PrefixDigests(identity Digest, tokens []byte, media []Media, ns []int) (Prefix, *Boundaries, error) {
	if err := checkTokens(tokens); err != nil {
		return Prefix{}, nil, err
	}
	most := len(tokens) / tokenBytes
	want := newBoundaries(most)
	for _, n := range ns {
		if n < 1 || n > most {
			return Prefix{}, nil, invalidf("no digest of %d tokens: there are %d", n, most)
		}
		want.mark(n)
	}
	if len(ns) == 0 {
		return Prefix{}, nil, invalidf("no digest is wanted")
	}
	c := buildChain(identity, tokens, media, want)
	return c.Prefix(ns[len(ns)-1]), want, nil
}

// longTokens take about 0.1 ms to hash.
const longTokens = 32 << 10

// buildChain computes the roots and, if want is not nil, fills it. The tokens
// have been checked.
func buildChain(identity Digest, tokens []byte, media []Media, want *Boundaries) *Chain {
	next := -1 // the next wanted n
	if want != nil {
		want.seal()
		next = want.next(1)
	}
	count := len(tokens) / tokenBytes
	if count >= longTokens {
		defer pages.LongSlice()()
	}
	c := &Chain{tokens: tokens, media: media, roots: make([]Digest, 1, count/HashUnit+1)}
	c.roots[0] = Root(identity)
	u := unit{Chain: c, hash: sha256.New()}
	for start := 0; start < count; start += HashUnit {
		u.begin(start)
		end := min(start+HashUnit, count)
		for next > 0 && next <= end {
			*want.slot(next) = u.sum(next)
			next = want.next(next + 1)
		}
		if end == start+HashUnit {
			c.roots = append(c.roots, u.sum(end))
		}
	}
	return c
}

// NumTokens returns how many tokens the chain covers.
func (c *Chain) NumTokens() int { return len(c.tokens) / tokenBytes }

// Roots returns root(0) .. root(NumTokens/HashUnit), not to be changed.
func (c *Chain) Roots() []Digest { return c.roots }

// Tail returns the tokens that follow root(k), at most a unit of them: what a
// tail hash is made from. It is empty if the tokens end at the root.
func (c *Chain) Tail(k int) []byte {
	start := k * HashUnit * tokenBytes
	return c.tokens[start:min(start+HashUnit*tokenBytes, len(c.tokens))]
}

// Digest returns D(n), n from 1 to NumTokens. It hashes at most one unit.
func (c *Chain) Digest(n int) Digest {
	if n%HashUnit == 0 {
		return c.roots[n/HashUnit]
	}
	u := unit{Chain: c, hash: sha256.New()}
	u.begin(startTokens(n))
	return u.sum(n)
}

// Prefix returns the prefix of n tokens, n from 1 to NumTokens.
func (c *Chain) Prefix(n int) Prefix {
	start := startTokens(n)
	return Prefix{StartTokens: start, Root: c.roots[start/HashUnit], Digest: c.Digest(n)}
}

// unit hashes a chain, one unit after the other, each in order.
type unit struct {
	*Chain
	hash  hash.Hash // has the root and the tokens up to at
	start int
	at    int
	buf   Digest
}

// begin starts the unit of the tokens from start on.
func (u *unit) begin(start int) {
	u.start, u.at = start, start
	u.hash.Reset()
	u.buf = u.roots[start/HashUnit]
	u.hash.Write(u.buf[:])
}

// sum returns the digest of n tokens, n in the unit and not before at.
// The state goes on without the media items, which follow the tokens.
func (u *unit) sum(n int) Digest {
	u.hash.Write(u.tokens[u.at*tokenBytes : n*tokenBytes])
	u.at = n
	h := u.hash
	if items := mediaWithin(u.media, u.start, n); len(items) > 0 {
		h = cloneHash(h)
		for _, m := range items {
			u.writeMedia(h, m)
		}
	}
	h.Sum(u.buf[:0])
	return u.buf
}

// writeMedia hashes u64 at and str(digest).
func (u *unit) writeMedia(h hash.Hash, m Media) {
	b := make([]byte, 0, 8+4+64)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.At))
	b = appendStr(b, m.Digest)
	h.Write(b)
}

// cloneHash copies the state of a SHA-256.
func cloneHash(h hash.Hash) hash.Hash {
	clone, err := h.(hash.Cloner).Clone()
	if err != nil {
		panic("index: the state of SHA-256 can't be copied: " + err.Error()) // crypto/sha256 always can
	}
	return clone
}

// mediaWithin returns the items that start at a token from start to before end.
func mediaWithin(media []Media, start, end int) []Media {
	if len(media) == 0 {
		return nil
	}
	first := sort.Search(len(media), func(i int) bool { return int(media[i].At) >= start })
	last := first
	for last < len(media) && int(media[last].At) < end {
		last++
	}
	return media[first:last]
}

// appendStr appends str(s) of the format: u32 byte length, then the bytes.
func appendStr(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// checkTokens checks the count of tokens and that each is below 2^31.
func checkTokens(tokens []byte) error {
	count := len(tokens) / tokenBytes
	if len(tokens)%tokenBytes != 0 {
		return invalidf("the tokens have %d bytes, which is no multiple of %d", len(tokens), tokenBytes)
	}
	if count < 1 || count > MaxTokens {
		return invalidf("there must be 1 to %d tokens, not %d", MaxTokens, count)
	}
	if !highBitSet(tokens) {
		return nil
	}
	for i := range count {
		if tokens[i*tokenBytes+tokenBytes-1]&0x80 != 0 {
			return invalidf("token %d is not below 2^31", i)
		}
	}
	return nil
}

// highBitSet reports whether the highest bit of any token is set.
func highBitSet(tokens []byte) bool {
	var all uint64
	for ; len(tokens) >= 32; tokens = tokens[32:] {
		all |= binary.LittleEndian.Uint64(tokens) | binary.LittleEndian.Uint64(tokens[8:]) |
			binary.LittleEndian.Uint64(tokens[16:]) | binary.LittleEndian.Uint64(tokens[24:])
	}
	var rest uint32
	for ; len(tokens) >= tokenBytes; tokens = tokens[tokenBytes:] {
		rest |= binary.LittleEndian.Uint32(tokens)
	}
	return all&(1<<63|1<<31) != 0 || rest&(1<<31) != 0
}
