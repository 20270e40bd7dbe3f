package index

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// directDigest is D(n) by its definition, recursively.
func directDigest(identity Digest, tokens []byte, media []Media, n int) Digest {
	if n == 0 {
		return Root(identity)
	}
	start := startTokens(n)
	root := directDigest(identity, tokens, media, start)
	b := append(root[:], tokens[start*tokenBytes:n*tokenBytes]...)
	for _, m := range media {
		if int(m.At) >= start && int(m.At) < n {
			b = binary.LittleEndian.AppendUint64(b, uint64(m.At))
			b = appendStr(b, m.Digest)
		}
	}
	return sha256.Sum256(b)
}

func TestChainProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 1300).Draw(t, "tokens")
		tokens := testTokens(count, rapid.IntRange(0, 1000).Draw(t, "seed"))
		var media []Media
		ats := rapid.SliceOfDistinct(rapid.Uint32Range(0, uint32(count-1)), rapid.ID).Draw(t, "media")
		slices.Sort(ats)
		for _, at := range ats {
			media = append(media, Media{At: at, Digest: hex40})
		}
		ns := rapid.SliceOfN(rapid.IntRange(1, count), 1, 20).Draw(t, "ns")
		identity := Digest{byte(count)}
		prefix, all, err := PrefixDigests(identity, tokens, media, ns)
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewChain(identity, tokens, media)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range ns {
			want := directDigest(identity, tokens, media, n)
			if got, ok := all.At(n); !ok || got != want {
				t.Fatalf("D(%d) in one pass differs", n)
			}
			if c.Digest(n) != want {
				t.Fatalf("D(%d) differs", n)
			}
		}
		slices.Sort(ns)
		if want := len(slices.Compact(slices.Clone(ns))); all.Len() != want {
			t.Fatalf("%d digests, want %d", all.Len(), want)
		}
		for i, root := range c.Roots() {
			if root != directDigest(identity, tokens, media, i*HashUnit) {
				t.Fatalf("root(%d) differs", i)
			}
		}
		if prefix.StartTokens%HashUnit != 0 || prefix.Root != directDigest(identity, tokens, media, prefix.StartTokens) {
			t.Fatalf("prefix %+v", prefix)
		}
	})
}

func TestChainRefuses(t *testing.T) {
	_, err := NewChain(Digest{}, nil, nil)
	wantInvalid(t, "no tokens", err, "there must be 1 to 4194304 tokens, not 0")
	_, err = NewChain(Digest{}, make([]byte, 4*MaxTokens+4), nil)
	wantInvalid(t, "too many tokens", err, "not 4194305")
	_, err = NewChain(Digest{}, make([]byte, 5), nil)
	wantInvalid(t, "cut token", err, "no multiple of 4")
	for _, at := range []int{0, 7, 8, 15, 16, 17} {
		tokens := testTokens(18, 0)
		tokens[4*at+3] |= 0x80
		_, err = NewChain(Digest{}, tokens, nil)
		wantInvalid(t, "a large token", err, "is not below 2^31")
	}
	for _, ns := range [][]int{nil, {0}, {19}, {-1}} {
		if _, _, err := PrefixDigests(Digest{}, testTokens(18, 0), nil, ns); err == nil {
			t.Errorf("digests of %v of 18 tokens", ns)
		}
	}
}

func TestBoundariesAt(t *testing.T) {
	_, b, err := PrefixDigests(Digest{}, testTokens(130, 0), nil, []int{64, 130, 1})
	if err != nil {
		t.Fatal(err)
	}
	for n := -1; n < 300; n++ {
		if _, ok := b.At(n); ok != (n == 1 || n == 64 || n == 130) {
			t.Errorf("At(%d) = %v", n, ok)
		}
	}
}

func TestTail(t *testing.T) {
	c, err := NewChain(Digest{}, testTokens(600, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range []int{256, 256, 88} {
		if got := len(c.Tail(k)) / tokenBytes; got != want {
			t.Errorf("unit %d has %d tokens, want %d", k, got, want)
		}
	}
	c, _ = NewChain(Digest{}, testTokens(512, 0), nil)
	if len(c.Tail(2)) != 0 || c.NumTokens() != 512 {
		t.Error("something follows the last root")
	}
}

func TestTailHash(t *testing.T) {
	tokens := testTokens(HashUnit, 1)
	var h tailHasher
	seen := map[uint64]bool{}
	for n := 1; n <= HashUnit; n++ {
		got := h.Add(binary.LittleEndian.Uint32(tokens[(n-1)*tokenBytes:]))
		if got != TailHash(tokens[:n*tokenBytes]) {
			t.Fatalf("the hash of %d tokens is not that of one after the other", n)
		}
		seen[got] = true
	}
	// Neither a change of one token nor another order nor length may be lost.
	for i := range HashUnit {
		changed := slices.Clone(tokens)
		changed[i*tokenBytes]++
		seen[TailHash(changed)] = true
		if i > 0 {
			swapped := slices.Clone(tokens)
			copy(swapped[i*tokenBytes:], tokens[(i-1)*tokenBytes:i*tokenBytes])
			copy(swapped[(i-1)*tokenBytes:], tokens[i*tokenBytes:(i+1)*tokenBytes])
			seen[TailHash(swapped)] = true
		}
		seen[TailHash(make([]byte, (i+1)*tokenBytes))] = true // zeros
	}
	if want := 4*HashUnit - 1; len(seen) != want {
		t.Errorf("%d different hashes, want %d", len(seen), want)
	}
}

func BenchmarkChain(b *testing.B) {
	tokens := testTokens(200_000, 1)
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(len(tokens)))
		for b.Loop() {
			sha256.Sum256(tokens)
		}
	})
	b.Run("roots", func(b *testing.B) {
		b.SetBytes(int64(len(tokens)))
		b.ReportAllocs()
		for b.Loop() {
			NewChain(Digest{}, tokens, nil)
		}
	})
	b.Run("every 64", func(b *testing.B) {
		var ns []int
		for n := 64; n <= 200_000; n += 64 {
			ns = append(ns, n)
		}
		b.SetBytes(int64(len(tokens)))
		for b.Loop() {
			PrefixDigests(Digest{}, tokens, nil, ns)
		}
	})
}

func BenchmarkTailHash(b *testing.B) {
	tokens := testTokens(HashUnit, 1)
	b.SetBytes(int64(len(tokens)))
	for b.Loop() {
		TailHash(tokens)
	}
}
