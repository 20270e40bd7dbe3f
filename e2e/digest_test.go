package e2e

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"testing"
)

// The contract's digests (section 4), written from the contract alone.

type digest [32]byte

func (d digest) hex() string   { return hex.EncodeToString(d[:]) }
func (d digest) hex40() string { return hex.EncodeToString(d[:20]) }

const hashUnit = 256

// mediaItem is an image or the like, whose placeholder tokens say nothing of its content.
type mediaItem struct {
	At     int    `json:"at"`
	Digest string `json:"digest"`
}

type hasher struct{ h hash.Hash }

func newHasher(prefix string) hasher {
	h := hasher{sha256.New()}
	h.h.Write([]byte(prefix))
	return h
}
func (h hasher) bytes(b []byte) hasher { h.h.Write(b); return h }
func (h hasher) u32(n int) hasher {
	return h.bytes(binary.LittleEndian.AppendUint32(nil, uint32(n)))
}
func (h hasher) u64(n int64) hasher {
	return h.bytes(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}
func (h hasher) str(s string) hasher { return h.u32(len(s)).bytes([]byte(s)) }
func (h hasher) sum() (d digest)     { h.h.Sum(d[:0]); return d }

// unit hashes tokens [from, to) and the media that start within them.
func (h hasher) unit(tokens []uint32, media []mediaItem, from, to int) hasher {
	for _, tok := range tokens[from:to] {
		h.u32(int(tok))
	}
	for _, m := range media {
		if m.At >= from && m.At < to {
			h.u64(int64(m.At)).str(m.Digest)
		}
	}
	return h
}

// chain computes root(k) and D(n) for the prefix of n tokens.
func chain(identity digest, tokens []uint32, media []mediaItem, n int) (start int, root, d digest) {
	root = newHasher("ckptfs token chain v1\x00").bytes(identity[:]).u32(hashUnit).sum()
	k := (n+hashUnit-1)/hashUnit - 1
	for i := range k {
		root = newHasher("").bytes(root[:]).unit(tokens, media, i*hashUnit, (i+1)*hashUnit).sum()
	}
	start = k * hashUnit
	return start, root, newHasher("").bytes(root[:]).unit(tokens, media, start, n).sum()
}

// tokenBytes is the form in which tokens are written to files.
func tokenBytes(tokens []uint32) []byte {
	b := make([]byte, 0, 4*len(tokens))
	for _, tok := range tokens {
		b = binary.LittleEndian.AppendUint32(b, tok)
	}
	return b
}

// TestChainOwn checks this package's own D(n) at the hash unit's edges: D(iC) is root(i).
func TestChainOwn(t *testing.T) {
	tokens := conversation(1, 1000)
	var id digest
	_, _, d512 := chain(id, tokens, nil, 512)
	start, root, _ := chain(id, tokens, nil, 513)
	if start != 512 || root != d512 {
		t.Errorf("root(2) is not D(512): start %d", start)
	}
	if start, _, _ := chain(id, tokens, nil, 512); start != 256 {
		t.Errorf("D(512) starts from root(1), not from token %d", start)
	}
	_, _, plain := chain(id, tokens, nil, 300)
	_, _, with := chain(id, tokens, []mediaItem{{At: 10, Digest: hexOf(40)}}, 300)
	_, _, beyond := chain(id, tokens, []mediaItem{{At: 300, Digest: hexOf(40)}}, 300)
	if plain == with || plain != beyond {
		t.Error("media count where they start, and nowhere else")
	}
}
