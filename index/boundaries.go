package index

import "math/bits"

// Boundaries holds D(n) for a set of token counts n. It is a bit for each
// token and the digests in order, so that a manifest's millions of positions
// cost no sorting and no map.
type Boundaries struct {
	bits    []uint64 // bit n: n is in the set
	before  []int32  // how many are in the set before each word of bits
	digests []Digest // in order of n
}

// newBoundaries is for token counts up to most; mark them, then seal.
func newBoundaries(most int) *Boundaries {
	return &Boundaries{bits: make([]uint64, most/64+1)}
}

func (b *Boundaries) mark(n int) { b.bits[n/64] |= 1 << (n % 64) }

// seal makes room for the digests of what is marked.
func (b *Boundaries) seal() {
	b.before = make([]int32, len(b.bits))
	total := 0
	for i, w := range b.bits {
		b.before[i] = int32(total)
		total += bits.OnesCount64(w)
	}
	b.digests = make([]Digest, total)
}

// next returns the lowest marked count from n on, or -1.
func (b *Boundaries) next(n int) int {
	for i := n / 64; i < len(b.bits); i++ {
		w := b.bits[i]
		if i == n/64 {
			w &= ^uint64(0) << (n % 64)
		}
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// slot returns where the digest of a marked count is.
func (b *Boundaries) slot(n int) *Digest {
	below := b.bits[n/64] & (1<<(n%64) - 1)
	return &b.digests[int(b.before[n/64])+bits.OnesCount64(below)]
}

// At returns D(n); false if n is not in the set.
func (b *Boundaries) At(n int) (Digest, bool) {
	if n < 0 || n/64 >= len(b.bits) || b.bits[n/64]&(1<<(n%64)) == 0 {
		return Digest{}, false
	}
	return *b.slot(n), true
}

// Len returns how many counts are in the set.
func (b *Boundaries) Len() int { return len(b.digests) }
