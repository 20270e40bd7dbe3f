package index

import (
	"fmt"
	"math"
)

// Verdict is what the caller of Find says of a candidate.
type Verdict int

const (
	Take Verdict = iota // it is the answer
	Skip                // it can't be had: try the next shorter one
)

// FindResult is a generation, or in words why the best lead was no hit.
type FindResult struct {
	Generation *Generation
	Reason     string
	// Retired is what would have been a longer answer than Generation had it
	// not been retired; its zero value if nothing would.
	Retired RetiredLead
}

// RetiredLead is a generation that is not published any more.
type RetiredLead struct {
	ID        ObjectID
	NumTokens int
	At        int64  // when it was retired, nanoseconds since 1970
	Reason    Reason // why
}

// Find returns the published generation with the most tokens that is an exact
// prefix of the request's tokens, the whole of them included, and that accept
// takes; among equals, the one published last. A nil accept takes any.
//
// accept is called with no lock held, and may retire the candidate. Find
// itself holds the identity's lock for reading, for microseconds at a time; it
// does no I/O and never waits for a transaction. The request is as
// ParseFindRequest gives it.
func (x *Index) Find(i *Identity, req *FindRequest, accept func(*Generation) Verdict) FindResult {
	doc := i.Document()
	if doc == nil {
		return FindResult{Reason: "the identity has no document yet"}
	}
	limit := len(req.Tokens) / tokenBytes
	if req.MaxTokens > 0 {
		limit = min(limit, req.MaxTokens)
	}
	chain := buildChain(doc.Digest, req.Tokens[:limit*tokenBytes], req.Media, nil)
	var skipped *Generation // the longest of them
	for tokens, seq := limit, int64(math.MaxInt64); ; {
		g := i.longestPublished(chain, tokens, seq)
		if g == nil {
			break
		}
		if accept == nil || accept(g) == Take {
			return FindResult{Generation: g, Retired: i.retiredBeyond(chain, limit, g.NumTokens)}
		}
		if skipped == nil {
			skipped = g
		}
		tokens, seq = g.NumTokens, g.seq
	}
	lost := i.retiredBeyond(chain, limit, 0)
	if limit < len(req.Tokens)/tokenBytes {
		chain = buildChain(doc.Digest, req.Tokens, req.Media, nil)
	}
	return FindResult{Reason: i.missReason(chain, limit, skipped), Retired: lost}
}

// retiredBeyond returns the longest retired generation that was a prefix of
// chain's tokens, of more than tokens and at most limit of them.
func (i *Identity) retiredBeyond(chain *Chain, limit, tokens int) RetiredLead {
	i.mu.RLock()
	defer i.mu.RUnlock()
	r := i.mu.retired.longest(chain, limit, math.MaxInt64)
	if r == nil || r.end.tokens <= tokens {
		return RetiredLead{}
	}
	return RetiredLead{r.id, r.end.tokens, r.at, Reason(r.reason.Value())}
}

func (i *Identity) longestPublished(chain *Chain, tokens int, seq int64) *Generation {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.mu.published.longest(chain, tokens, seq)
}

// missReason tells why the best lead was no hit. The best lead is the longest
// generation that is, or was, a prefix of the whole request: chain has all its
// tokens, limit is how many a hit might have.
func (i *Identity) missReason(chain *Chain, limit int, skipped *Generation) string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	lead, reason := 0, ""
	if skipped != nil {
		lead = skipped.NumTokens
		reason = fmt.Sprintf("the longest match (%d tokens) can't be read now", lead)
	}
	if r := i.mu.retired.longest(chain, chain.NumTokens(), math.MaxInt64); r != nil && r.end.tokens >= lead {
		lead, reason = r.end.tokens, r.String()
	}
	if g := i.mu.published.longest(chain, chain.NumTokens(), math.MaxInt64); g != nil && g.NumTokens > max(limit, lead-1) {
		return fmt.Sprintf("the longest match (%d tokens) is beyond max_tokens (%d)", g.NumTokens, limit)
	}
	switch n := i.mu.generations.len(); {
	case reason != "":
		return reason
	case n == 0:
		return "nothing is published under this identity"
	default:
		return fmt.Sprintf("no common prefix: none of the %d generations published under this identity is a prefix of the request", n)
	}
}
