package index

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"

	"ckptfs/pages"
)

// MaxPages bounds the pages of a generation, over all ranks: each has a key
// in memory. A caller refuses what its RAM tier can't hold (Layout.Bytes and
// Layout.Total) before it derives anything.
const MaxPages = 1 << 24

const (
	generationLabel = "ckptfs generation v2\x00"
	pageLabelV1     = "ckptfs page v1\x00"
	pageLabelV2     = "ckptfs page v2\x00"
	modelLabel      = "ckptfs page of a model v1\x00"
)

// Derived is what follows from a manifest, its identity and its tokens.
type Derived struct {
	GenerationDigest Digest
	Name             string // of the generation's directory
	Prefix           Prefix
	TailHash         uint64      // of the tokens after Prefix.StartTokens
	HasTail          bool        // false if TailHash is unknown: there were no tokens
	Keys             []pages.Key // content keys; see InModel
	PageDigests      [][]Digest  // by group: D(n) of each position if attention, else nil
}

// GenerationName returns the name of a generation's directory.
func GenerationName(numTokens int, kind Kind, digest Digest) string {
	tokens := strconv.Itoa(numTokens)
	return "00000000"[min(len(tokens), 8):] + tokens + "-" + string(kind) + "-" + digest.Short()
}

// Derive computes a generation's digests and page keys from its tokens
// (unsigned 32-bit little-endian), which it hashes once and does not keep.
// Keys are in the order of the slots of Layout(worldSize). If the manifest is
// a published one, its fields must be what the tokens give.
// The error is an InvalidError.
func (m *Manifest) Derive(identity Digest, worldSize int, tokens []byte) (*Derived, error) {
	if len(tokens) != m.NumTokens*tokenBytes {
		return nil, invalidf("tokens has %d bytes, but num_tokens is %d, which makes %d", len(tokens), m.NumTokens, m.NumTokens*tokenBytes)
	}
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	want := newBoundaries(m.NumTokens)
	for i := range m.Groups {
		if g := &m.Groups[i]; g.Role == RoleAttention {
			for p := range g.Positions {
				want.mark(m.boundary(g, p))
			}
		}
	}
	c := buildChain(identity, tokens, m.Media, want)
	d := &Derived{Prefix: c.Prefix(m.NumTokens), HasTail: true, PageDigests: make([][]Digest, len(m.Groups))}
	d.TailHash = TailHash(tokens[d.Prefix.StartTokens*tokenBytes:])
	for i := range m.Groups {
		g := &m.Groups[i]
		if g.Role != RoleAttention {
			continue
		}
		d.PageDigests[i] = make([]Digest, len(g.Positions))
		for p := range g.Positions {
			d.PageDigests[i][p] = *want.slot(m.boundary(g, p))
		}
	}
	if err := m.finish(d, identity, worldSize); err != nil {
		return nil, err
	}
	if err := m.checkDerived(d); err != nil {
		return nil, err
	}
	return d, nil
}

// DeriveRestored computes the same from a published manifest alone, without
// its tokens: it takes the digests from the manifest, and refuses one whose
// identity, world size or generation is not what they give.
// The error is an InvalidError.
func (m *Manifest) DeriveRestored(identity Digest, worldSize int) (*Derived, error) {
	if m.Published == nil {
		return nil, invalidf("there are no tokens, and the manifest has no fields of a published one to do without them")
	}
	d := &Derived{Prefix: m.Published.Prefix, PageDigests: make([][]Digest, len(m.Groups))}
	if d.Prefix.StartTokens == 0 && d.Prefix.Root != Root(identity) {
		return nil, invalidf("prefix.root is not the root of this identity")
	}
	for i := range m.Groups {
		d.PageDigests[i] = m.Groups[i].PageDigests
	}
	if err := m.finish(d, identity, worldSize); err != nil {
		return nil, err
	}
	return d, nil
}

// finish adds the digest, the name and the keys to the prefix's digests.
func (m *Manifest) finish(d *Derived, identity Digest, worldSize int) error {
	if worldSize < 1 || worldSize > MaxWorldSize {
		return invalidf("the world size must be 1 to %d, not %d", MaxWorldSize, worldSize)
	}
	d.GenerationDigest = m.generationDigest(d.Prefix.Digest)
	d.Name = GenerationName(m.NumTokens, m.Kind, d.GenerationDigest)
	if p := m.Published; p != nil {
		switch {
		case p.Identity != identity.Hex() && p.Identity != identity.Short():
			return invalidf("identity is %s, but this is identity %s", p.Identity, identity.Short())
		case p.WorldSize != worldSize:
			return invalidf("world_size is %d, but this identity has %d", p.WorldSize, worldSize)
		case p.Generation != d.Name:
			return invalidf("generation is %s, but the manifest's digests give %s", quoteCut(p.Generation), d.Name)
		}
	}
	count := 0
	for i := range m.Groups {
		count += len(m.Groups[i].Positions)
	}
	if count*worldSize > MaxPages {
		return invalidf("%d pages for each of %d ranks are more than %d", count, worldSize, MaxPages)
	}
	d.Keys = m.keys(d, count, worldSize)
	return nil
}

// InModel turns the content keys into page keys, by which the index and the tiers
// know pages: H(label ‖ str(model) ‖ content key). Models have owners, and what
// one tenant has stored must neither show in another's plan nor get into
// another's generation, though both have the same document.
func (d *Derived) InModel(model string) {
	b := appendStr([]byte(modelLabel), model)
	n := len(b)
	for i := range d.Keys {
		b = append(b[:n], d.Keys[i][:]...)
		d.Keys[i] = sha256.Sum256(b)
	}
}

// checkDerived compares what the tokens give with the fields of a published
// manifest; finish has compared the rest.
func (m *Manifest) checkDerived(d *Derived) error {
	if m.Published == nil {
		return nil
	}
	if m.Published.Prefix != d.Prefix {
		return invalidf("prefix is not that of the tokens")
	}
	for i := range m.Groups {
		if !slices.Equal(m.Groups[i].PageDigests, d.PageDigests[i]) {
			return invalidf("page_groups[%d].%s are not those of the tokens", i, fieldPageDigests)
		}
	}
	return nil
}

// generationDigest hashes the label, D(num_tokens) and the manifest as
// written, without the request.
func (m *Manifest) generationDigest(prefix Digest) Digest {
	written := make(rawObject, 0, len(m.written))
	for _, f := range m.written {
		if f.key != "request" {
			written = append(written, f)
		}
	}
	h := sha256.New()
	h.Write([]byte(generationLabel))
	h.Write(prefix[:])
	h.Write(written.appendTo(nil))
	return Digest(h.Sum(nil))
}

// keys returns the content keys of all pages in slot order.
func (m *Manifest) keys(d *Derived, perRank, worldSize int) []pages.Key {
	keys := make([]pages.Key, 0, perRank*worldSize)
	var b []byte
	for rank := range worldSize {
		for i := range m.Groups {
			g := &m.Groups[i]
			if m.SchemaVersion == 1 {
				b = appendKeyV1(b[:0], d.GenerationDigest, rank, g.Name)
				keys = appendKeysV1(keys, b, g.Positions)
				continue
			}
			b = m.appendKeyV2(b[:0], d.Prefix.Digest, rank, g)
			if g.Role == RoleAttention {
				keys = m.appendAttentionKeys(keys, b, g, d.PageDigests[i])
			} else {
				keys = appendEndpointKeys(keys, b, g)
			}
		}
	}
	return keys
}

// appendKeyV1 appends what the keys of a group in a rank are made of, the
// position of the last 4 bytes left open.
func appendKeyV1(b []byte, generation Digest, rank int, group string) []byte {
	b = append(b, pageLabelV1...)
	b = append(b, generation[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(rank))
	b = appendStr(b, group)
	return append(b, 0, 0, 0, 0)
}

func appendKeysV1(keys []pages.Key, b []byte, positions []uint32) []pages.Key {
	for _, pos := range positions {
		binary.LittleEndian.PutUint32(b[len(b)-4:], pos)
		keys = append(keys, sha256.Sum256(b))
	}
	return keys
}

// appendKeyV2 appends what the keys of a group in a rank are made of, for
// n = num_tokens and position 0.
func (m *Manifest) appendKeyV2(b []byte, prefix Digest, rank int, g *Group) []byte {
	b = append(b, pageLabelV2...)
	b = append(b, prefix[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.NumTokens))
	b = binary.LittleEndian.AppendUint32(b, uint32(rank))
	b = appendStr(b, g.Name)
	b = appendStr(b, string(g.Role))
	b = binary.LittleEndian.AppendUint64(b, uint64(g.PageBytes))
	if g.Role != RoleAttention {
		b = append(b, 0, 0, 0, 0) // the position
	}
	if g.Role == RoleAuxiliary {
		b = appendStr(b, string(m.Kind))
		b = binary.LittleEndian.AppendUint32(b, m.DraftPrefixLen)
	}
	return b
}

// appendAttentionKeys fills D(n) and n of b for each position.
func (m *Manifest) appendAttentionKeys(keys []pages.Key, b []byte, g *Group, digests []Digest) []pages.Key {
	const digestAt = len(pageLabelV2)
	for p := range g.Positions {
		copy(b[digestAt:], digests[p][:])
		binary.LittleEndian.PutUint64(b[digestAt+len(Digest{}):], uint64(m.boundary(g, p)))
		keys = append(keys, sha256.Sum256(b))
	}
	return keys
}

// appendEndpointKeys fills the position of b, of a recurrent or auxiliary
// group, for each position.
func appendEndpointKeys(keys []pages.Key, b []byte, g *Group) []pages.Key {
	positionAt := len(pageLabelV2) + len(Digest{}) + 8 + 4 + 4 + len(g.Name) + 4 + len(g.Role) + 8
	for _, pos := range g.Positions {
		binary.LittleEndian.PutUint32(b[positionAt:], pos)
		keys = append(keys, sha256.Sum256(b))
	}
	return keys
}
