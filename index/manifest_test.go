package index

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const testManifest = `{"schema_version":2,"kind":"prompt","request":"req-7f3a","num_tokens":3000,"draft_prefix_len":0,
	"page_groups":[{"name":"target.attention.0","role":"attention","page_tokens":1024,"page_bytes":6893568,"positions":[0,1,2]},
	{"name":"target.recurrent.0","role":"recurrent","page_bytes":6893568,"positions":[39]},
	{"name":"target-draft-auxiliary","role":"auxiliary","page_bytes":6893568,"positions":[0]}]}`

// testTokens makes count tokens that differ from seed to seed.
func testTokens(count, seed int) []byte {
	return tokenSpec{Count: uint64(count), Mul: 2654435761, Add: uint64(seed), Mod: 1 << 31}.tokens()
}

func TestParseManifest(t *testing.T) {
	m, err := ParseManifest([]byte(testManifest))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d %s %s %d %d %q %v %v", m.SchemaVersion, m.Kind, m.Request, m.NumTokens, m.DraftPrefixLen, m.Nonce, m.Groups, m.Media)
	want := `2 prompt req-7f3a 3000 0 "" [{target.attention.0 attention 1024 6893568 [0 1 2] []} ` +
		`{target.recurrent.0 recurrent 0 6893568 [39] []} {target-draft-auxiliary auxiliary 0 6893568 [0] []}] []`
	if got != want || m.Published != nil {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, edits := range [][]edit{
		{with("schema_version", 1), with("nonce", "n")},
		{with("nonce", []int{1, 2})}, // of schema 2: a field like any other
		{without("draft_prefix_len")},
		{with("draft_prefix_len", uint32(math.MaxUint32))},
		{with("num_tokens", MaxTokens), with("request", strings.Repeat("é", 64))},
		{with("page_groups", []any{})},
		{with("page_groups.positions", []int{})},
		{with("page_groups.positions", []int{2}), with("page_groups.page_tokens", math.MaxInt32), with("page_groups.role", "recurrent")},
		{with("page_groups.page_bytes", 1<<30), with("page_groups.name", strings.Repeat("n", 255))},
		{with("page_groups.name", "a.b\\\n é")},
		{with("page_groups.role", "auxiliary"), with("page_groups.positions", []uint32{0, math.MaxUint32})},
		{with("media", []any{})},
		{with("media", []any{map[string]any{"at": 0, "digest": hex40, "more": 1}, map[string]any{"at": 2999, "digest": strings.ToUpper(hex40)}})},
		{with("page_groups.page_tokens", 3000), with("page_groups.positions", []int{0})},
	} {
		raw := editJSON(t, testManifest, edits...)
		if _, err := ParseManifest(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestParseManifestRefuses(t *testing.T) {
	item := func(at any, digest any) map[string]any { return map[string]any{"at": at, "digest": digest} }
	for _, c := range []struct {
		edit edit
		want string
	}{
		{without("schema_version"), "schema_version is missing"},
		{with("schema_version", 3), "schema_version must be an integer from 1 to 2, not 3"},
		{with("schema_version", 1), "nonce is missing"},
		{with("kind", "answer"), "kind must be one of instruction, prompt, response"},
		{with("kind", nil), "kind must be one of"},
		{without("request"), "request is missing"},
		{with("request", ""), "request must have 1 to 128 bytes"},
		{with("request", strings.Repeat("é", 65)), "request must have 1 to 128 bytes, not 130"},
		{with("request", 7), "request must be a string"},
		{with("num_tokens", 0), "num_tokens must be"},
		{with("num_tokens", MaxTokens+1), "num_tokens must be"},
		{with("num_tokens", 1.5), "num_tokens (byte"},
		{with("draft_prefix_len", -1), "draft_prefix_len must be"},
		{with("draft_prefix_len", 1<<32), "draft_prefix_len must be"},
		{without("page_groups"), "page_groups is missing"},
		{with("page_groups", map[string]any{}), "page_groups must be an array"},
		{with("page_groups", []any{1}), "page_groups[0] must be an object"},
		{without("page_groups.name"), "page_groups[0].name is missing"},
		{with("page_groups.name", ""), "page_groups[0].name must have 1 to 255 bytes"},
		{with("page_groups.name", strings.Repeat("n", 256)), "page_groups[0].name must have 1 to 255 bytes"},
		{with("page_groups.name", ".x"), "must not begin with a dot"},
		{with("page_groups.name", "a/b"), "contain a slash"},
		{with("page_groups.name", "a\x00b"), "contain a slash or NUL"},
		{with("page_groups.name", "target.recurrent.0"), `page_groups[1].name is "target.recurrent.0", the name of page_groups[0]`},
		{with("page_groups.role", "other"), "page_groups[0].role must be one of"},
		{without("page_groups.page_tokens"), "page_groups[0].page_tokens is missing"},
		{with("page_groups.page_tokens", 0), "page_groups[0].page_tokens must be"},
		{with("page_groups.page_bytes", 0), "page_groups[0].page_bytes must be"},
		{with("page_groups.page_bytes", 1<<30+1), "page_groups[0].page_bytes must be"},
		{without("page_groups.positions"), "page_groups[0].positions is missing"},
		{with("page_groups.positions", 1), "page_groups[0].positions must be an array"},
		{with("page_groups.positions", []int{0, 0}), "page_groups[0].positions[1] is 0, which does not come after 0"},
		{with("page_groups.positions", []int{1, 0}), "does not come after"},
		{with("page_groups.positions", []int{-1}), "positions[0] must be an integer"},
		{with("page_groups.positions", []any{"0"}), "positions[0] must be an integer"},
		{with("page_groups.positions", []int{3}), "end at position 2 with 3000 tokens"},
		{with("page_groups.positions", []uint32{math.MaxUint32}), "end at position 2"},
		{with("media", nil), "media must be an array"},
		{with("media", []any{item(3000, hex40)}), "media[0].at must be an integer from 0 to 2999"},
		{with("media", []any{item(5, hex40), item(5, hex40)}), "media[1].at is 5, which does not come after 5"},
		{with("media", []any{item(5, "sha256:"+hex40)}), "media[0].digest must be"},
		{with("media", []any{map[string]any{"at": 1}}), "media[0].digest is missing"},
		{with("generation", "x"), "generation is there but"},
		{with("page_groups.page_digests", []any{}), "page_groups[0].page_digests is there but"},
		{with("filler", strings.Repeat("x", MaxManifestBytes)), "more than 16777216"},
	} {
		raw := editJSON(t, testManifest, c.edit)
		m, err := ParseManifest(raw)
		wantInvalid(t, string(raw), err, c.want)
		if m != nil {
			t.Errorf("%.200s: an error and a manifest", raw)
		}
	}
}

// manifestOf makes a manifest of groups, each with the positions 0..positions-1.
func manifestOf(groups, positions, numTokens int, role string) []byte {
	var list bytes.Buffer
	for p := range positions {
		fmt.Fprintf(&list, ",%d", p)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"schema_version":2,"kind":"prompt","request":"r","num_tokens":%d,"page_groups":[`, numTokens)
	for g := range groups {
		if g > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"g%d","role":"%s","page_tokens":1,"page_bytes":1,"positions":[%s]}`, g, role, list.Bytes()[min(1, list.Len()):])
	}
	b.WriteString("]}")
	return b.Bytes()
}

func TestManifestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("large inputs")
	}
	for _, c := range []struct {
		groups, positions, tokens int
		role, want                string
	}{
		{MaxGroups, 1, 1, "attention", ""},
		{MaxGroups + 1, 1, 1, "recurrent", "more than 4096 groups"},
		{1, MaxPositions, MaxPositions, "attention", ""},
		{2, MaxPositions, 1, "recurrent", ""},
		{1, MaxPositions + 1, MaxTokens, "attention", "more than 1048576 positions"},
		{3, MaxPositions, 1, "recurrent", "more than 16777216"},
	} {
		raw := manifestOf(c.groups, c.positions, c.tokens, c.role)
		start := time.Now()
		m, err := ParseManifest(raw)
		t.Logf("%d groups of %d positions, %d bytes: %v", c.groups, c.positions, len(raw), time.Since(start))
		if c.want != "" {
			wantInvalid(t, string(raw), err, c.want)
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if n := m.Layout(3).Total(); n != 3*c.groups*c.positions {
			t.Errorf("%d groups of %d positions: %d pages", c.groups, c.positions, n)
		}
	}
}

// A change of any field but the request changes the generation, and one
// spelling of JSON or another doesn't.
func TestGenerationDigestCoversTheManifest(t *testing.T) {
	identity, tokens := Digest{1}, testTokens(3000, 1)
	name := func(edits ...edit) string {
		m, err := ParseManifest(editJSON(t, testManifest, edits...))
		if err != nil {
			t.Fatal(err)
		}
		d, err := m.Derive(identity, 2, tokens)
		if err != nil {
			t.Fatal(err)
		}
		return d.Name
	}
	base := name()
	for _, same := range [][]edit{{with("request", "other")}, nil} {
		if got := name(same...); got != base {
			t.Errorf("%s, want %s", got, base)
		}
	}
	seen := map[string]int{base: -1}
	for i, e := range []edit{
		with("kind", "response"), with("draft_prefix_len", 1), without("draft_prefix_len"), with("x", 1), with("x", 2), with("nonce", "n"),
		with("page_groups.x", 1), with("page_groups.positions", []int{0, 1}), with("media", []any{}), with("page_groups.page_bytes", 5),
	} {
		got := name(e)
		if other, ok := seen[got]; ok {
			t.Errorf("edits %d and %d give one generation", i, other)
		}
		seen[got] = i
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(testManifest))
	f.Add(editJSON(f, testManifest, with("media", []any{map[string]any{"at": 7, "digest": hex40}}), with("é\"", "\x01")))
	f.Add(publishedManifest(f))
	f.Add(manifestOf(3, 0, 9, "auxiliary"))
	identity := Digest{9}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			return
		}
		if m.NumTokens > 1<<16 {
			return // slow to hash, nothing new
		}
		var d *Derived
		if m.Published != nil {
			d, err = m.DeriveRestored(identity, m.Published.WorldSize)
		} else {
			d, err = m.Derive(identity, 2, testTokens(m.NumTokens, 3))
		}
		if err != nil {
			if m.Published == nil {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		worldSize := 2
		if m.Published != nil {
			worldSize = m.Published.WorldSize
		}
		checkRoundTrip(t, m, identity, worldSize, d)
	})
}

// checkRoundTrip publishes and restores, and compares all there is.
func checkRoundTrip(t interface{ Fatalf(string, ...any) }, m *Manifest, identity Digest, worldSize int, d *Derived) {
	published, err := m.PublishedJSON(identity, worldSize, d)
	if err != nil {
		t.Fatalf("publishing: %v", err)
	}
	if len(published) > m.publishedBytesBound() {
		t.Fatalf("published %d bytes, more than the bound %d", len(published), m.publishedBytesBound())
	}
	restored, err := ParseManifest(published)
	if err != nil {
		t.Fatalf("%s: %v", published, err)
	}
	again, err := restored.DeriveRestored(identity, worldSize)
	if err != nil {
		t.Fatalf("%s: %v", published, err)
	}
	if again.Name != d.Name || again.Prefix != d.Prefix || fmt.Sprint(again.Keys) != fmt.Sprint(d.Keys) {
		t.Fatalf("%s: restored as %s", published, again.Name)
	}
	twice, err := restored.PublishedJSON(identity, worldSize, again)
	if err != nil || !bytes.Equal(twice, published) {
		t.Fatalf("%s: published again as %s, %v", published, twice, err)
	}
}

func TestPublishRestoreProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numTokens := rapid.IntRange(1, 1100).Draw(t, "tokens")
		pageTokens := rapid.IntRange(1, 600).Draw(t, "page_tokens")
		raw := fmt.Sprintf(`{"schema_version":%d,"nonce":"n","kind":"response","request":"r","num_tokens":%d,"z":[{}],"page_groups":[
			{"name":"a","role":"attention","page_tokens":%d,"page_bytes":9,"positions":[0,%d]},
			{"name":"b","role":"attention","page_tokens":1,"page_bytes":9,"positions":[%d]},
			{"name":"c","role":"%s","page_bytes":9,"positions":[5]}],"media":[{"at":%d,"digest":"%s"}]}`,
			rapid.IntRange(1, 2).Draw(t, "schema"), numTokens+pageTokens, pageTokens, (numTokens+pageTokens-1)/pageTokens,
			rapid.IntRange(0, numTokens-1).Draw(t, "position"), rapid.SampledFrom([]string{"recurrent", "auxiliary"}).Draw(t, "role"),
			rapid.IntRange(0, numTokens-1).Draw(t, "at"), hex40)
		m, err := ParseManifest([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		identity, worldSize := Digest{3}, rapid.IntRange(1, 3).Draw(t, "ranks")
		d, err := m.Derive(identity, worldSize, testTokens(m.NumTokens, 5))
		if err != nil {
			t.Fatal(err)
		}
		checkRoundTrip(t, m, identity, worldSize, d)
	})
}
