package index

import (
	"slices"
	"unique"
)

// Rule decides what the publication of g supersedes. prefixes are the published
// generations that are a proper prefix of it, and sameRequest those of their
// requests, prefixes among them; both in the order of publication. parent, nil
// for none, becomes a fork point. It is called in the transaction that publishes,
// so it must be quick and must not call the index.
type Rule func(g *Generation, prefixes, sameRequest []*Generation) (parent *Generation, superseded []*Generation)

// Prefixes returns the published generations that are a proper prefix of the
// chain's tokens, the longest first. It does no I/O.
func (i *Identity) Prefixes(chain *Chain) []*Generation {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var found []*Generation
	tokens, seq := chain.NumTokens(), int64(0) // none of all its tokens
	for {
		g := i.mu.published.longest(chain, tokens, seq)
		if g == nil {
			return found
		}
		found = append(found, g)
		tokens, seq = g.NumTokens, g.seq
	}
}

// kinship is what a publication has to do with what was published before.
type kinship struct {
	superseded []ObjectID
	changes    []StateChange
}

// kinOf finds it and sets g's parent. The writer's lock is held, so that nothing
// is published or retired meanwhile.
func (x *Index) kinOf(g *Generation, p *Publication) kinship {
	prefixes := make([]*Generation, 0, len(p.Prefixes))
	for _, id := range p.Prefixes {
		a := x.GenerationByID(id)
		if a != nil && a.Identity == g.Identity && a.NumTokens < g.NumTokens {
			prefixes = append(prefixes, a)
		}
	}
	inOrder(prefixes)
	prefixes = slices.Compact(prefixes)
	tokens := 0
	for _, a := range prefixes {
		if a.NumTokens >= tokens {
			g.Parent, tokens = a.ID, a.NumTokens
		}
	}
	if p.Supersede == nil || len(prefixes) == 0 {
		return kinship{}
	}
	parent, superseded := p.Supersede(g, prefixes, g.Identity.sameRequest(prefixes))
	var k kinship
	if parent != nil && parent.State() != Fork {
		k.changes = append(k.changes, StateChange{parent, Fork, 0})
	}
	for _, a := range superseded {
		if s := a.State(); !s.Superseded() {
			k.superseded = append(k.superseded, a.ID)
			k.changes = append(k.changes, StateChange{a, s.superseded(), g.ID})
		}
	}
	return k
}

func inOrder(gs []*Generation) {
	slices.SortFunc(gs, func(a, b *Generation) int { return int(a.seq - b.seq) })
}

// sameRequest returns the published generations whose request one of gs has.
func (i *Identity) sameRequest(gs []*Generation) []*Generation {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var all []*Generation
	seen := make(map[unique.Handle[string]]bool, len(gs))
	for _, g := range gs {
		if !seen[g.request] {
			seen[g.request] = true
			all = append(all, i.mu.requests[g.request]...)
		}
	}
	inOrder(all)
	return all
}

// requests lists the published generations of an identity by their request.
// The identity's lock guards it.
type requests map[unique.Handle[string]][]*Generation

func (r *requests) add(g *Generation) {
	if *r == nil {
		*r = make(requests)
	}
	(*r)[g.request] = append((*r)[g.request], g)
}

func (r requests) remove(g *Generation) {
	same := r[g.request]
	if len(same) == 1 {
		delete(r, g.request)
		return
	}
	at := slices.Index(same, g)
	r[g.request] = slices.Delete(same, at, at+1)
}
