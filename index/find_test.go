package index

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// findModel is what Find is compared with: a list that is scanned.
type findModel struct {
	published []modelEnd
	retired   []modelEnd
	count     int // published so far
}

type modelEnd struct {
	g      *Generation
	tokens []byte
	media  []Media
}

// matches reports whether e is an exact prefix of a request.
func (e *modelEnd) matches(req *FindRequest) bool {
	within := slices.DeleteFunc(slices.Clone(req.Media), func(m Media) bool { return int(m.At) >= len(e.tokens)/tokenBytes })
	return bytes.HasPrefix(req.Tokens, e.tokens) && slices.Equal(within, e.media)
}

// best returns the longest match of at most limit tokens that is not skipped,
// the one published last among equals.
func best(ends []modelEnd, req *FindRequest, limit int, skip map[*Generation]bool) *modelEnd {
	var found *modelEnd
	for n := range ends {
		e := &ends[n]
		if e.g.NumTokens > limit || skip[e.g] || !e.matches(req) {
			continue
		}
		if found == nil || e.g.NumTokens >= found.g.NumTokens {
			found = e
		}
	}
	return found
}

// reason returns how the reason for a miss should begin.
func (m *findModel) reason(req *FindRequest, limit int, skip map[*Generation]bool) string {
	skipped := best(m.published, req, limit, nil)
	beyond := best(m.published, req, req.NumTokens, nil)
	retired := best(m.retired, req, req.NumTokens, nil)
	lead := 0
	for _, e := range []*modelEnd{skipped, beyond, retired} {
		if e != nil {
			lead = max(lead, e.g.NumTokens)
		}
	}
	match := fmt.Sprintf("the longest match (%d tokens)", lead)
	switch {
	case lead == 0 && len(m.published) == 0:
		return "nothing is published under this identity"
	case lead == 0:
		return "no common prefix"
	case beyond != nil && beyond.g.NumTokens == lead && lead > limit:
		return match + " is beyond max_tokens"
	case retired != nil && retired.g.NumTokens == lead:
		return match + " was retired at 1970-01-01T00:00:09Z: for a test"
	}
	return match + " can't be read now"
}

// drawTokens makes tokens that often begin like others, and often end near the
// end of a hash unit.
func drawTokens(t *rapid.T, m *findModel) ([]byte, []Media) {
	var tokens []byte
	var media []Media
	if ends := slices.Concat(m.published, m.retired); len(ends) > 0 && rapid.IntRange(0, 5).Draw(t, "fresh") > 0 {
		e := rapid.SampledFrom(ends).Draw(t, "like")
		tokens, media = slices.Clone(e.tokens), slices.Clone(e.media)
	}
	unit := func(label string) int {
		n := HashUnit*rapid.IntRange(0, 3).Draw(t, label) + rapid.IntRange(-2, 2).Draw(t, label+" off")
		return max(n, 0)
	}
	if n := unit("cut"); rapid.Bool().Draw(t, "cutting") && n < len(tokens)/tokenBytes {
		tokens = tokens[:n*tokenBytes]
		media = slices.DeleteFunc(media, func(m Media) bool { return int(m.At) >= n })
	}
	grow := rapid.IntRange(0, 3).Draw(t, "grow")
	if n := unit("grow to"); rapid.Bool().Draw(t, "growing") {
		grow = max(grow, n-len(tokens)/tokenBytes)
	}
	if len(tokens) == 0 {
		grow = max(grow, 1)
	}
	common := uint32(rapid.IntRange(0, 1).Draw(t, "token"))
	for n := range grow {
		v := common
		if n >= grow-2 {
			v = uint32(rapid.IntRange(0, 1).Draw(t, "last token"))
		}
		tokens = append(tokens, tokensOf(v)...)
	}
	from := 0
	if len(media) > 0 {
		from = int(media[len(media)-1].At) + 1
	}
	if n := len(tokens) / tokenBytes; from < n && rapid.IntRange(0, 3).Draw(t, "media") == 0 {
		digest := strings.Repeat(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "digest"), 40)
		media = append(media, Media{At: uint32(rapid.IntRange(from, n-1).Draw(t, "at")), Digest: digest})
	}
	return tokens, media
}

func mediaJSON(media []Media) string {
	if len(media) == 0 {
		return ""
	}
	type item struct {
		At     uint32 `json:"at"`
		Digest string `json:"digest"`
	}
	var items []item
	for _, m := range media {
		items = append(items, item(m))
	}
	b, _ := json.Marshal(items)
	return string(b)
}

func TestFindIsWhatAScanFinds(t *testing.T) {
	x := newStore(t)
	identities := 0
	rapid.Check(t, func(rt *rapid.T) {
		identities++
		i := newIdentity(t, x, fmt.Sprint(identities))
		var m findModel
		rt.Repeat(map[string]func(*rapid.T){
			"publish": func(rt *rapid.T) {
				tokens, media := drawTokens(rt, &m)
				m.count++
				g := publish(t, x, i, draft{
					tokens: tokens, media: mediaJSON(media), extra: fmt.Sprint(m.count),
					restored: rapid.IntRange(0, 3).Draw(rt, "restored") == 0,
				})
				m.published = append(m.published, modelEnd{g, tokens, media})
			},
			"retire": func(rt *rapid.T) {
				if len(m.published) == 0 {
					rt.Skip()
				}
				at := rapid.IntRange(0, len(m.published)-1).Draw(rt, "which")
				must(x.Retire([]*Generation{m.published[at].g}, "for a test", 9e9, 0, nil))
				m.retired = append(m.retired, m.published[at])
				m.published = slices.Delete(m.published, at, at+1)
			},
			"find": func(rt *rapid.T) {
				tokens, media := drawTokens(rt, &m)
				checkFind(rt, x, i, &m, tokens, media)
			},
		})
	})
}

func checkFind(t *rapid.T, x *Index, i *Identity, m *findModel, tokens []byte, media []Media) {
	req := &FindRequest{NumTokens: len(tokens) / tokenBytes, Tokens: tokens, Media: media}
	limit := req.NumTokens
	if rapid.Bool().Draw(t, "bounded") {
		req.MaxTokens = rapid.IntRange(1, req.NumTokens+1).Draw(t, "max_tokens")
		limit = min(limit, req.MaxTokens)
	}
	skip := make(map[*Generation]bool)
	for _, e := range m.published {
		if rapid.IntRange(0, 3).Draw(t, "skip") == 0 {
			skip[e.g] = true
		}
	}
	asked := make(map[*Generation]bool)
	res := x.Find(i, req, func(g *Generation) Verdict {
		if asked[g] {
			t.Fatalf("asked twice for %s", g.Name)
		}
		asked[g] = true
		if skip[g] {
			return Skip
		}
		return Take
	})
	want := best(m.published, req, limit, skip)
	if want == nil {
		if r := m.reason(req, limit, skip); res.Generation != nil || !strings.HasPrefix(res.Reason, r) {
			t.Fatalf("found %v, reason %q, want %q", res.Generation, res.Reason, r)
		}
		return
	}
	if res.Generation != want.g || res.Reason != "" {
		t.Fatalf("found %v, want %s", res, want.g.Name)
	}
	for _, e := range m.published { // only what comes before the answer was asked for
		if better := e.matches(req) && e.g.NumTokens <= limit && skip[e.g] &&
			(e.g.NumTokens > want.g.NumTokens || e.g.NumTokens == want.g.NumTokens && e.g.seq > want.g.seq); better != asked[e.g] && e.g != want.g {
			t.Fatalf("asked for %s: %v", e.g.Name, asked[e.g])
		}
	}
}

func TestFindOfAnIdentityWithoutADocument(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	if err := x.RemoveDocument(i, 0); err != nil {
		t.Fatal(err)
	}
	res := x.Find(i, &FindRequest{NumTokens: 1, Tokens: tokensOf(1)}, nil)
	if res.Generation != nil || res.Reason == "" {
		t.Error(res)
	}
}

func TestRetirementsAreBounded(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(10, 0)})
	if _, err := x.Retire([]*Generation{g}, "for a test", 1, 0, nil); err != nil {
		t.Fatal(err)
	}
	reason := func() string {
		return x.Find(i, &FindRequest{NumTokens: 10, Tokens: repeated(10, 0)}, nil).Reason
	}
	if got, want := reason(), "the longest match (10 tokens) was retired at 1970-01-01T00:00:00Z: for a test"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
	other := newIdentity(t, x, "other")
	gs := make([]*Generation, maxRetired)
	for n := range gs {
		gs[n] = &Generation{Identity: other, NumTokens: 1, Prefix: Prefix{Digest: Digest{byte(n), byte(n >> 8)}}}
	}
	records := x.retirements.plan(gs, "too many", 2)
	err := x.update("a test", 0, func(tx *conn) error { return x.retirements.store(tx, records) }, func() {
		for _, r := range records {
			x.retirements.stored(r)
			r.identity.mu.retired.add(r)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := reason(); got != "nothing is published under this identity" {
		t.Errorf("after %d others: %q", maxRetired, got)
	}
	if n := must(x.writer.mu.conn.integer("SELECT count(*) FROM retired")); n != maxRetired {
		t.Errorf("%d rows", n)
	}
}
