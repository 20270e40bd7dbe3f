package index

import (
	"slices"
	"unique"
)

// Rule decides what the publication of g supersedes. prefixes are the published
// generations that are a proper prefix of it, and sameRequest those of their
// requests, prefixes among them, but not those of g's own; both in the order of
// publication. parent, nil
// for none, becomes a fork point. It is called in the transaction that publishes,
// so it must be quick and must not call the index.
type Rule func(g *Generation, prefixes, sameRequest []*Generation) (parent *Generation, superseded []*Generation)

// Prefixes returns the published generations that are a proper prefix of the
// chain's tokens, the longest first. It does no I/O, and holds the identity's
// lock for one hash unit at a time.
func (i *Identity) Prefixes(chain *Chain) []*Generation {
	most := chain.NumTokens() - 1 // none of all its tokens
	if most == 0 {
		return nil
	}
	var found []*Generation
	for k := startTokens(most) / HashUnit; k >= 0; k-- {
		i.mu.RLock()
		found = i.mu.published.appendUnit(found, chain, k, most)
		i.mu.RUnlock()
	}
	return found
}

// Kinship is what a publication has to do with what was published before.
type Kinship struct {
	Kept       ObjectID   // became a fork point, and is current; 0: none
	Superseded []ObjectID // were current until then
}

type kinship struct {
	Kinship
	changes []StateChange
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
	parent, superseded := p.Supersede(g, prefixes, g.Identity.sameRequest(prefixes, g))
	var k kinship
	if parent != nil {
		k.Kept = parent.ID
		if parent.State() != Fork {
			k.changes = append(k.changes, StateChange{parent, Fork, 0})
		}
	}
	for _, a := range superseded {
		if s := a.State(); !s.Superseded() {
			k.Superseded = append(k.Superseded, a.ID)
			k.changes = append(k.changes, StateChange{a, s.superseded(), g.ID})
		}
	}
	return k
}

func inOrder(gs []*Generation) {
	slices.SortFunc(gs, func(a, b *Generation) int { return int(a.seq - b.seq) })
}

// sameRequest returns the published generations whose request one of gs has,
// not counting the request of g itself.
func (i *Identity) sameRequest(gs []*Generation, g *Generation) []*Generation {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var all []*Generation
	seen := make(map[unique.Handle[string]]bool, len(gs))
	seen[g.request] = true
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
