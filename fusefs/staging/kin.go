package staging

import (
	"errors"
	"io/fs"
	"path/filepath"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// kinFile has the ids of the generations that may be proper prefixes of the
// staging's, published and not: its tokens are gone once the manifest is
// accepted. Those that count are chosen when it is published.
const kinFile = "kin"

// kinOf looks for the proper prefixes of tokens: generations, and stagings that
// may be generations before this one is. A shorter staging whose manifest is
// accepted after this one is not known to be a prefix.
func (d *Draft) kinOf(tokens []byte, media []index.Media) ([]index.ObjectID, error) {
	chain, err := index.NewChain(d.doc.Digest, tokens, media)
	if err != nil {
		return nil, err
	}
	var ids []index.ObjectID
	// The stagings first: one that is published in between is seen twice
	// rather than not at all.
	for _, other := range d.m.OfIdentity(d.Identity.ID) {
		if other != d && other.isPrefixOf(chain) {
			ids = append(ids, other.ID)
		}
	}
	for _, g := range d.Identity.Prefixes(chain) {
		ids = append(ids, g.ID)
	}
	return ids, nil
}

// isPrefixOf reports whether the staging's tokens are a proper prefix.
func (d *Draft) isPrefixOf(chain *index.Chain) bool {
	d.mu.Lock()
	c, ghost := d.mu.content, d.mu.ghost
	d.mu.Unlock()
	if c == nil || ghost || c.manifest.NumTokens >= chain.NumTokens() {
		return false
	}
	p := c.derived.Prefix
	return chain.Roots()[p.StartTokens/index.HashUnit] == p.Root && chain.Digest(c.manifest.NumTokens) == p.Digest
}

// readKin is what a former daemon found. A generation that was unpublished has
// none.
func (d *Draft) readKin() ([]index.ObjectID, error) {
	var ids []index.ObjectID
	err := readGob(filepath.Join(d.m.draftDir(d.ID), kinFile), &ids)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return ids, err
}

// Kin is what the staging's publication had to do with what was there before.
func (d *Draft) Kin() index.Kinship {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.kin
}

// Brought lists the pages that the staging's publication has brought, in the
// order of its slots.
func (d *Draft) Brought() []pages.ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.brought
}

// supersede is contract section 8 for the index.
func supersede(g *index.Generation, prefixes, sameRequest []*index.Generation) (*index.Generation, []*index.Generation) {
	n := numbering{byID: map[retention.ID]*index.Generation{}, requests: map[string]uint64{}}
	s := retention.Supersede(n.member(g), n.members(prefixes), n.members(sameRequest))
	superseded := make([]*index.Generation, len(s.Superseded))
	for i, id := range s.Superseded {
		superseded[i] = n.byID[id]
	}
	return n.byID[s.Parent], superseded
}

// numbering gives generations and requests the numbers of the rule.
type numbering struct {
	byID     map[retention.ID]*index.Generation
	requests map[string]uint64
}

func (n numbering) members(gs []*index.Generation) []retention.Member {
	ms := make([]retention.Member, len(gs))
	for i, g := range gs {
		ms[i] = n.member(g)
		n.byID[ms[i].ID] = g
	}
	return ms
}

func (n numbering) member(g *index.Generation) retention.Member {
	request, ok := n.requests[g.Request]
	if !ok {
		request = uint64(len(n.requests)) + 1
		n.requests[g.Request] = request
	}
	// Among equals the rule takes the highest number for the latest.
	m := retention.Member{ID: retention.ID(g.Order()), Request: request, Kind: retention.Response, Tokens: g.NumTokens}
	switch g.Kind {
	case index.KindInstruction:
		m.Kind = retention.Instruction
	case index.KindPrompt:
		m.Kind = retention.Prompt
	}
	return m
}
