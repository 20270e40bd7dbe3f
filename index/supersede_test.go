package index

import (
	"fmt"
	"testing"
)

// passOver is a rule that supersedes all proper prefixes but the longest.
func passOver(_ *Generation, prefixes, _ []*Generation) (parent *Generation, superseded []*Generation) {
	for _, g := range prefixes {
		if parent == nil || g.NumTokens > parent.NumTokens {
			parent = g
		}
	}
	for _, g := range prefixes {
		if g != parent {
			superseded = append(superseded, g)
		}
	}
	return parent, superseded
}

// publishNext publishes what continues all of the conversation's generations,
// and counts the statements.
func publishNext(t *testing.T, x *Index, i *Identity, tokens []byte, n int) (g *Generation, statements int) {
	t.Helper()
	p := must(publication(x, i, draft{tokens: tokens[:n*tokenBytes], request: fmt.Sprint("r", n)}))
	chain, err := NewChain(i.Document().Digest, tokens[:n*tokenBytes], nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Supersede = passOver
	for _, a := range i.Prefixes(chain) {
		p.Prefixes = append(p.Prefixes, a.ID)
	}
	x.writer.mu.Lock()
	before := x.writer.mu.conn.ran
	x.writer.mu.Unlock()
	if g, _, err = x.Publish(p); err != nil {
		t.Fatal(err)
	}
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	return g, x.writer.mu.conn.ran - before
}

// TestStatementsOfAPublication: as many whether there are other generations or
// not, and however many ancestors are superseded already. Two more, a state and
// an event, for the fork point, and for each that is superseded now; one for the
// links of all pages that are shared.
func TestStatementsOfAPublication(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	tokens := repeated(3000, 0)
	var last *Generation
	cost := map[int]int{}
	for n := range 10 {
		last, cost[n] = publishNext(t, x, i, tokens, 128*(n+1))
	}
	for n := range 200 { // others, of requests that the conversation has too
		publish(t, x, i, draft{tokens: repeated(200+n, 7000), request: fmt.Sprint("r", 128*(n%10+1))})
	}
	g, after := publishNext(t, x, i, tokens, 128*11)
	if g.Parent != last.ID || last.State() != Fork || after != cost[9] || cost[9] != cost[2] || cost[1] != cost[0]+3 || cost[2] != cost[1]+2 {
		t.Errorf("%d statements beside 200 others, and %v before", after, cost)
	}
}
