package index

import (
	"database/sql/driver"
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"
)

// ending is where a prefix of tokens ends: what it takes to find it.
type ending struct {
	tokens  int
	prefix  Prefix
	tail    uint64 // TailHash of the tokens after prefix.StartTokens
	hasTail bool
}

// tailValue is the column tail: NULL if the hash is not known.
func (e ending) tailValue() driver.Value {
	if !e.hasTail {
		return nil
	}
	return int64(e.tail)
}

// tailOf is the inverse of tailValue.
func tailOf(v driver.Value) (uint64, bool) {
	n, ok := v.(int64)
	return uint64(n), ok
}

// ended is something that ends at a prefix.
type ended interface {
	comparable
	ending() ending
	sequence() int64 // distinct; the higher one is the later one
}

// prefixes finds the longest of many prefixes that a sequence of tokens begins
// with. There is a bucket for each hash unit in which some prefix ends, known
// by the root at its start. In a bucket, only lengths that occur are looked
// at, and of those only the ones whose tail hash occurs: the digest D(n),
// which is what decides, is computed for these alone. A prefix whose tail hash
// is not known makes D(n) be computed for its length. So a search costs one
// probe a hash unit, one pass over the tail in the buckets that exist, and one
// digest for each match, however many prefixes end in one bucket, or at the
// same tokens.
//
// It takes about 250 bytes for each prefix, less where they share buckets. The
// owner's lock guards it: a search may run beside another one.
type prefixes[T ended] struct {
	buckets map[Digest]bucket // by root
	tails   map[uint64]uint32 // how many prefixes have a tailKey
	ends    map[Digest][]T    // by D(n), the latest last
}

// bucket is a hash unit in which prefixes end.
type bucket struct {
	count  int
	hashed lengths // of tails whose hash is known
	plain  lengths // of the others
}

// lengths is a set of tail lengths, 1..HashUnit. Nothing is taken out: one
// length too many costs a probe, and the set goes with its bucket.
type lengths [HashUnit / 64]uint64

func (l *lengths) add(n int)      { l[(n-1)/64] |= 1 << ((n - 1) % 64) }
func (l *lengths) remove(n int)   { l[(n-1)/64] &^= 1 << ((n - 1) % 64) }
func (l *lengths) has(n int) bool { return l[(n-1)/64]&(1<<((n-1)%64)) != 0 }

// most returns the greatest length of the set, 0 if it is empty.
func (l *lengths) most() int {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i] != 0 {
			return i*64 + bits.Len64(l[i])
		}
	}
	return 0
}

// tailKey names a tail of n tokens in the bucket of a root. It only selects
// candidates, so it need not be unique.
func tailKey(root *Digest, n int, hash uint64) uint64 {
	return binary.LittleEndian.Uint64(root[:]) ^ bits.RotateLeft64(hash, 32)*(2*uint64(n)+1)
}

func (e ending) tailKey() uint64 {
	return tailKey(&e.prefix.Root, e.tokens-e.prefix.StartTokens, e.tail)
}

// grow makes room for n prefixes in all. There is none yet.
func (p *prefixes[T]) grow(n int) {
	p.buckets = make(map[Digest]bucket, n)
	p.tails = make(map[uint64]uint32, n)
	p.ends = make(map[Digest][]T, n)
}

// add adds v. In most cases it is the latest.
func (p *prefixes[T]) add(v T) {
	if p.buckets == nil {
		p.grow(0)
	}
	e := v.ending()
	b := p.buckets[e.prefix.Root]
	b.count++
	if length := e.tokens - e.prefix.StartTokens; e.hasTail {
		b.hashed.add(length)
		p.tails[e.tailKey()]++
	} else {
		b.plain.add(length)
	}
	p.buckets[e.prefix.Root] = b
	same := p.ends[e.prefix.Digest]
	p.ends[e.prefix.Digest] = slices.Insert(same, before(same, v.sequence()), v)
}

// remove takes v out; it must be there.
func (p *prefixes[T]) remove(v T) {
	e := v.ending()
	if b := p.buckets[e.prefix.Root]; b.count == 1 {
		delete(p.buckets, e.prefix.Root)
	} else {
		b.count--
		p.buckets[e.prefix.Root] = b
	}
	if e.hasTail {
		if k := e.tailKey(); p.tails[k] == 1 {
			delete(p.tails, k)
		} else {
			p.tails[k]--
		}
	}
	same := p.ends[e.prefix.Digest]
	if len(same) == 1 {
		delete(p.ends, e.prefix.Digest)
		return
	}
	at := before(same, v.sequence())
	p.ends[e.prefix.Digest] = slices.Delete(same, at, at+1)
}

// before returns how many of same, in the order of their sequence, come
// before seq.
func before[T ended](same []T, seq int64) int {
	if n := len(same); n == 0 || same[n-1].sequence() < seq {
		return n
	}
	return sort.Search(len(same), func(i int) bool { return same[i].sequence() >= seq })
}

// longest returns the longest prefix of chain's tokens with at most limit
// tokens, and of those that are equal the latest; of those of exactly limit
// tokens, only the ones with a sequence below seq count. The zero T: there is
// none. A caller goes on after v with v's number of tokens and its sequence.
func (p *prefixes[T]) longest(chain *Chain, limit int, seq int64) T {
	var none T
	if len(p.ends) == 0 {
		return none
	}
	limit = min(limit, chain.NumTokens())
	roots := chain.Roots()
	for k := startTokens(limit) / HashUnit; k >= 0; k-- {
		b, ok := p.buckets[roots[k]]
		if !ok {
			continue
		}
		start := k * HashUnit
		found := p.candidates(chain, k, min(limit-start, HashUnit), &b)
		for n := found.most(); n > 0; n = found.most() {
			found.remove(n)
			same := p.ends[chain.Digest(start+n)]
			if start+n == limit {
				same = same[:before(same, seq)]
			}
			if len(same) > 0 {
				return same[len(same)-1]
			}
		}
	}
	return none
}

// appendUnit appends all prefixes of chain's tokens that end in the hash unit of
// root(k), with at most most tokens: the longest first, of equal ones the latest.
func (p *prefixes[T]) appendUnit(to []T, chain *Chain, k, most int) []T {
	b, ok := p.buckets[chain.Roots()[k]]
	if !ok {
		return to
	}
	start := k * HashUnit
	found := p.candidates(chain, k, min(most-start, HashUnit), &b)
	for n := found.most(); n > 0; n = found.most() {
		found.remove(n)
		for _, v := range slices.Backward(p.ends[chain.Digest(start+n)]) {
			to = append(to, v)
		}
	}
	return to
}

// candidates returns the lengths of at most n tokens at which a prefix may end
// in the bucket of root(k).
func (p *prefixes[T]) candidates(chain *Chain, k, n int, b *bucket) lengths {
	root, tail := &chain.Roots()[k], chain.Tail(k)
	var found lengths
	var t tailHasher
	for i := 1; i <= min(n, max(b.hashed.most(), b.plain.most())); i++ {
		hash := t.Add(binary.LittleEndian.Uint32(tail[(i-1)*tokenBytes:]))
		if b.plain.has(i) || b.hashed.has(i) && p.tails[tailKey(root, i, hash)] > 0 {
			found.add(i)
		}
	}
	return found
}
