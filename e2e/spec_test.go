package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// identity is a model's identity document and the directory that it names.
type identity struct {
	Doc   object
	World int
}

func newIdentity(salt string, world int) identity {
	return identity{World: world, Doc: object{
		"schema_version":  1,
		"target_revision": hexOf(64), "draft_revision": "", "source_revision": "git:" + hexOf(40),
		"cache_salt": salt,
		"layout":     object{"dtype": "bf16", "heads": 8},
		"parallel":   object{"world_size": world, "tensor": world},
	}}
}

// hexOf returns n hex digits.
func hexOf(n int) string { return strings.Repeat("0123456789abcdef", (n+15)/16)[:n] }

func (id identity) digest() digest { return sha256.Sum256(canonical(id.Doc)) }
func (id identity) dir() string    { return id.digest().hex40() }

// group is a page group as the manifest has it.
type group struct {
	Name, Role string
	PageTokens int // attention only
	PageBytes  int64
	Positions  []int
}

// generation is all that decides a generation: its name, its pages, their
// bytes. It can be sent to a client process as JSON.
type generation struct {
	ID      identity
	Kind    string
	Request string
	Tokens  []uint32
	Draft   int
	Schema  int
	Nonce   string
	Media   []mediaItem
	Groups  []group
	Extra   object // fields that the contract does not name
}

// page is one page of a generation.
type page struct {
	path  string // below the generation
	bytes int64
	key   digest
}

// conversation returns the first n tokens of a conversation; every length of
// one seed is a prefix of the longer ones.
func conversation(seed uint64, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(mix(seed<<32+uint64(i))) & 0x7fffffff
	}
	return tokens
}

const smallPage = 4096

// smallGeneration has the usual shape with tiny pages: attention over the
// whole prefix in pages of 256 tokens, a recurrent page and an auxiliary one
// at its end.
func smallGeneration(id identity, tokens []uint32) generation {
	return shapedGeneration(id, tokens, 256, smallPage)
}

func shapedGeneration(id identity, tokens []uint32, pageTokens int, pageBytes int64) generation {
	n := (len(tokens) + pageTokens - 1) / pageTokens
	positions := make([]int, n)
	for i := range positions {
		positions[i] = i
	}
	return generation{
		ID: id, Kind: "response", Request: "req-1", Tokens: tokens, Schema: 2,
		Groups: []group{
			{Name: "target.attention.0", Role: "attention", PageTokens: pageTokens, PageBytes: pageBytes, Positions: positions},
			{Name: "target.recurrent.0", Role: "recurrent", PageBytes: pageBytes, Positions: []int{n - 1}},
			{Name: "target-draft-auxiliary", Role: "auxiliary", PageBytes: pageBytes, Positions: []int{0}},
		},
	}
}

// tinyGeneration has one page of 16 bytes: for tests that need thousands.
func tinyGeneration(id identity, tokens []uint32) generation {
	return generation{
		ID: id, Kind: "response", Request: "req-1", Tokens: tokens, Schema: 2,
		Groups: []group{{Name: "r", Role: "recurrent", PageBytes: 16, Positions: []int{0}}},
	}
}

// manifest returns the manifest as an engine writes it.
func (g generation) manifest() object {
	groups := []any{}
	for _, gr := range g.Groups {
		o := object{"name": gr.Name, "role": gr.Role, "page_bytes": gr.PageBytes, "positions": gr.Positions}
		if gr.Role == "attention" {
			o["page_tokens"] = gr.PageTokens
		}
		groups = append(groups, o)
	}
	m := object{
		"schema_version": g.Schema, "kind": g.Kind, "request": g.Request, "num_tokens": len(g.Tokens),
		"draft_prefix_len": g.Draft, "page_groups": groups,
	}
	if g.Nonce != "" {
		m["nonce"] = g.Nonce
	}
	if len(g.Media) > 0 {
		list := []any{}
		for _, md := range g.Media {
			list = append(list, object{"at": md.At, "digest": md.Digest})
		}
		m["media"] = list
	}
	for k, v := range g.Extra {
		m[k] = v
	}
	return m
}

// prefixDigest is D(n) of the generation's tokens.
func (g generation) prefixDigest(n int) digest {
	_, _, d := chain(g.ID.digest(), g.Tokens, g.Media, n)
	return d
}

func (g generation) digest() digest {
	m := g.manifest()
	delete(m, "request")
	d := g.prefixDigest(len(g.Tokens))
	return newHasher("ckptfs generation v2\x00").bytes(d[:]).bytes(canonical(m)).sum()
}

func (g generation) name() string {
	return fmt.Sprintf("%08d-%s-%s", len(g.Tokens), g.Kind, g.digest().hex40())
}

// boundary is n for a page at position p: where the prefix ends that it depends on.
func (g generation) boundary(gr group, p int) int {
	if gr.Role == "attention" {
		return min((p+1)*gr.PageTokens, len(g.Tokens))
	}
	return len(g.Tokens)
}

// pages returns all pages, rank by rank, group by group, by position.
func (g generation) pages() []page {
	bounds := map[int]digest{}
	for _, gr := range g.Groups {
		for _, p := range gr.Positions {
			if n := g.boundary(gr, p); bounds[n] == (digest{}) {
				bounds[n] = g.prefixDigest(n)
			}
		}
	}
	generation := g.digest()
	var list []page
	for rank := range g.ID.World {
		for _, gr := range g.Groups {
			for _, p := range gr.Positions {
				n := g.boundary(gr, p)
				list = append(list, page{path: pagePath(rank, gr.Name, p), bytes: gr.PageBytes,
					key: g.contentKey(rank, gr, p, n, bounds[n], generation)})
			}
		}
	}
	return list
}

func (g generation) contentKey(rank int, gr group, p, n int, d, generation digest) digest {
	if g.Schema == 1 {
		return newHasher("ckptfs page v1\x00").bytes(generation[:]).u32(rank).str(gr.Name).u32(p).sum()
	}
	h := newHasher("ckptfs page v2\x00").bytes(d[:]).u64(int64(n)).u32(rank).str(gr.Name).str(gr.Role).u64(gr.PageBytes)
	switch gr.Role {
	case "recurrent":
		h.u32(p)
	case "auxiliary":
		h.u32(p).str(g.Kind).u32(g.Draft)
	}
	return h.sum()
}

func pagePath(rank int, group string, position int) string {
	return path.Join(fmt.Sprintf("rank-%d", rank), group, fmt.Sprintf("%08d", position))
}

// pageAt returns the page at a path below the generation.
func (g generation) pageAt(path string) page {
	for _, p := range g.pages() {
		if p.path == path {
			return p
		}
	}
	panic("no page " + path)
}

// ofRank returns the pages of one rank.
func ofRank(pages []page, rank int) []page {
	var list []page
	for _, p := range pages {
		if strings.HasPrefix(p.path, fmt.Sprintf("rank-%d/", rank)) {
			list = append(list, p)
		}
	}
	return list
}

// published returns the manifest as publication completes it. The identity is
// left out: the contract does not say with how many digits it is written.
func (g generation) published() object {
	m := g.manifest()
	n := len(g.Tokens)
	start, root, d := chain(g.ID.digest(), g.Tokens, g.Media, n)
	m["generation"] = g.name()
	m["world_size"] = g.ID.World
	m["prefix"] = object{"hash_unit": hashUnit, "start_tokens": start, "root": root.hex(), "digest": d.hex()}
	for i, gr := range g.Groups {
		if gr.Role != "attention" {
			continue
		}
		list := []string{}
		for _, p := range gr.Positions {
			list = append(list, g.prefixDigest(g.boundary(gr, p)).hex())
		}
		m["page_groups"].([]any)[i].(object)["page_digests"] = list
	}
	return m
}

// hexDigest parses what digest.hex wrote.
func hexDigest(s string) (d digest) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(d) {
		panic("not a digest: " + s)
	}
	copy(d[:], b)
	return d
}
