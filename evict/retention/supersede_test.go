package retention

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world is a brute-force model of contract section 8: it compares tokens, and
// follows the page's sentences one by one.
type world struct{ all []entry }

type entry struct {
	Member
	tokens []byte
}

func properPrefix(a, b []byte) bool { return len(a) < len(b) && slices.Equal(a, b[:len(a)]) }

// publish says what the contract says of the publication of p.
func (w *world) publish(p entry) (parent ID, superseded []ID) {
	if p.Kind != Prompt {
		return 0, nil
	}
	ancestor := func(g entry) bool { return properPrefix(g.tokens, p.tokens) && g.Request != p.Request }
	longest := -1
	for _, g := range w.all {
		if ancestor(g) && g.Tokens >= longest {
			longest, parent = g.Tokens, g.ID
		}
	}
	for _, g := range w.all {
		sibling := false
		for _, a := range w.all {
			sibling = sibling || ancestor(a) && a.Request == g.Request && !properPrefix(g.tokens, p.tokens)
		}
		if g.Kind == Instruction || g.ID == parent {
			continue
		}
		if ancestor(g) || sibling && g.Tokens < p.Tokens {
			superseded = append(superseded, g.ID)
		}
	}
	return parent, superseded
}

// relatives finds what Supersede wants, as an index would.
func (w *world) relatives(p entry) (prefixes, sameRequest []Member) {
	for _, g := range w.all {
		if properPrefix(g.tokens, p.tokens) {
			prefixes = append(prefixes, g.Member)
		}
	}
	for _, g := range w.all {
		if slices.ContainsFunc(prefixes, func(a Member) bool { return a.Request == g.Request }) {
			sameRequest = append(sameRequest, g.Member)
		}
	}
	return prefixes, sameRequest
}

// TestSupersedeModel publishes random trees of tokens, small enough that every
// kind of relation occurs, and compares with the brute force.
func TestSupersedeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w world
		for n := range rapid.IntRange(1, 30).Draw(t, "generations") {
			p := entry{tokens: rapid.SliceOfN(rapid.ByteRange(0, 1), 1, 7).Draw(t, "tokens")}
			p.Member = Member{
				ID:      ID(n + 1),
				Request: rapid.Uint64Range(1, 6).Draw(t, "request"),
				Kind:    rapid.SampledFrom([]Kind{Instruction, Prompt, Prompt, Response}).Draw(t, "kind"),
				Tokens:  len(p.tokens),
			}
			prefixes, sameRequest := w.relatives(p)
			got := Supersede(p.Member, prefixes, sameRequest)
			parent, superseded := w.publish(p)
			slices.Sort(got.Superseded)
			got.Superseded = slices.Compact(got.Superseded)
			if got.Parent != parent || !slices.Equal(got.Superseded, superseded) {
				t.Fatalf("publishing %+v: got parent %d, superseded %v; want %d, %v", p, got.Parent, got.Superseded, parent, superseded)
			}
			w.all = append(w.all, p)
		}
	})
}

// TestSupersedeSituations has the contract's own examples.
func TestSupersedeSituations(t *testing.T) {
	const conversation, turn, side = 1, 2, 3
	prompt := Member{1, conversation, Prompt, 100}
	response := Member{2, conversation, Response, 120}
	root := Member{9, 9, Instruction, 50}
	for _, c := range []struct {
		name        string
		p           Member
		prefixes    []Member
		sameRequest []Member
		want        Supersession
	}{
		{"next turn", Member{3, turn, Prompt, 130}, []Member{root, prompt, response}, []Member{prompt, response},
			Supersession{2, []ID{1}}},
		{"the template rewrites the answer", Member{3, turn, Prompt, 130}, []Member{prompt}, []Member{prompt, response},
			Supersession{1, []ID{2}}},
		{"a retry branches before the response", Member{3, turn, Prompt, 110}, []Member{prompt}, []Member{prompt, response},
			Supersession{1, nil}},
		{"a title request extends the tip", Member{4, side, Prompt, 125}, []Member{prompt, response}, []Member{prompt, response},
			Supersession{2, []ID{1}}},
		{"a response supersedes nothing", Member{5, turn, Response, 140}, []Member{prompt, response}, []Member{prompt, response},
			Supersession{}},
		{"the same request again", Member{6, conversation, Prompt, 140}, []Member{prompt, response}, []Member{prompt, response},
			Supersession{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Supersede(c.p, c.prefixes, c.sameRequest)
			if got.Parent != c.want.Parent || !slices.Equal(got.Superseded, c.want.Superseded) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
