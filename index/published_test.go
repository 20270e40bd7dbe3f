package index

import (
	"encoding/json"
	"strings"
	"testing"
)

// publishedManifest publishes testManifest, with media, for two ranks of
// identity {9}.
func publishedManifest(t testing.TB) []byte {
	t.Helper()
	m, err := ParseManifest(editJSON(t, testManifest, with("media", []any{map[string]any{"at": 2900, "digest": hex40}})))
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.Derive(Digest{9}, 2, testTokens(3000, 3))
	if err != nil {
		t.Fatal(err)
	}
	published, err := m.PublishedJSON(Digest{9}, 2, d)
	if err != nil {
		t.Fatal(err)
	}
	return published
}

func TestRestore(t *testing.T) {
	published := string(publishedManifest(t))
	for _, c := range []struct {
		edits []edit
		want  string // of the error, "" for none
	}{
		{nil, ""},
		{[]edit{with("identity", Digest{9}.Hex())}, ""},
		{[]edit{with("request", "another")}, ""}, // no part of the identity of a generation
		{[]edit{without("generation")}, "is there but generation is not"},
		{[]edit{without("identity")}, "is there but identity is not"},
		{[]edit{without("world_size")}, "is there but world_size is not"},
		{[]edit{without("prefix")}, "is there but prefix is not"},
		{[]edit{without("page_groups.page_digests")}, "is there but page_groups[0].page_digests is not"},
		{[]edit{with("identity", Digest{8}.Short())}, "but this is identity 0900"},
		{[]edit{with("identity", Digest{9}.Short()[1:])}, "identity must be 40 or 64"},
		{[]edit{with("world_size", 3)}, "world_size is 3, but this identity has 2"},
		{[]edit{with("generation", "00003000-prompt-"+hex40)}, "but the manifest's digests give 00003000-prompt-"},
		{[]edit{with("kind", "response")}, "but the manifest's digests give 00003000-response-"},
		{[]edit{with("more", 1)}, "but the manifest's digests give"},
		{[]edit{with("prefix.digest", Digest{7}.Hex())}, "stands elsewhere in the manifest"},
		{[]edit{with("prefix.digest", hex40)}, "prefix.digest must be 64"},
		{[]edit{with("prefix.root", strings.ToUpper(Digest{0xab}.Hex()))}, "prefix.root must be 64 lower-case"},
		{[]edit{with("prefix.start_tokens", 2560)}, "prefix.start_tokens must be an integer from 2816 to 2816"},
		{[]edit{with("prefix.hash_unit", 128)}, "prefix.hash_unit must be"},
		{[]edit{with("prefix.more", 1)}, "prefix has a field"},
		{[]edit{with("prefix", 1)}, "prefix must be an object"},
		{[]edit{with("page_groups.page_digests", []any{Digest{1}.Hex(), Digest{2}.Hex(), Digest{3}.Hex()})}, "page_digests[2] is not the digest of the first 3000 tokens"},
		{[]edit{with("page_groups.page_digests", []any{Digest{1}.Hex()})}, "has 1 digests for 3 positions"},
		{[]edit{with("page_groups.page_digests", []any{1, 2, 3})}, "page_digests[0] must be 64"},
		{[]edit{with("page_groups.page_digests", "x")}, "page_digests must be an array"},
		{[]edit{with("page_groups.role", "recurrent")}, "page_groups[0].page_digests: only attention groups"},
	} {
		raw := editJSON(t, published, c.edits...)
		m, err := ParseManifest(raw)
		if err == nil {
			_, err = m.DeriveRestored(Digest{9}, 2)
		}
		switch {
		case c.want != "":
			wantInvalid(t, string(raw), err, c.want)
		case err != nil:
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// What the manifest alone can't tell, the tokens tell if they are there.
func TestRestoreWithTokens(t *testing.T) {
	published := string(publishedManifest(t))
	var o struct {
		PageGroups []struct {
			PageDigests []string `json:"page_digests"`
		} `json:"page_groups"`
	}
	if err := json.Unmarshal([]byte(published), &o); err != nil {
		t.Fatal(err)
	}
	digests := o.PageGroups[0].PageDigests
	digests[0] = Digest{1}.Hex()
	for _, c := range []struct {
		edits []edit
		seed  int
		want  string
	}{
		{nil, 3, ""},
		{nil, 4, "but the manifest's digests give"},
		{[]edit{with("prefix.root", Digest{1}.Hex())}, 3, "prefix is not that of the tokens"},
		{[]edit{with("page_groups.page_digests", digests)}, 3, "page_groups[0].page_digests are not those of the tokens"},
	} {
		m, err := ParseManifest(editJSON(t, published, c.edits...))
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Derive(Digest{9}, 2, testTokens(3000, c.seed))
		switch {
		case c.want != "":
			wantInvalid(t, published, err, c.want)
		case err != nil:
			t.Error(err)
		}
	}
}

// A prefix within the first unit begins at the identity's own root.
func TestRestoreChecksTheIdentitysRoot(t *testing.T) {
	raw := manifestOf(1, 1, 200, "attention")
	m, err := ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.Derive(Digest{9}, 1, testTokens(200, 1))
	if err != nil {
		t.Fatal(err)
	}
	published, err := m.PublishedJSON(Digest{9}, 1, d)
	if err != nil {
		t.Fatal(err)
	}
	m, err = ParseManifest(editJSON(t, string(published), with("prefix.root", Digest{1}.Hex())))
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.DeriveRestored(Digest{9}, 1)
	wantInvalid(t, "a foreign root", err, "prefix.root is not the root of this identity")
}

func TestDeriveRefuses(t *testing.T) {
	m, err := ParseManifest([]byte(testManifest))
	if err != nil {
		t.Fatal(err)
	}
	tokens := testTokens(3000, 1)
	_, err = m.DeriveRestored(Digest{}, 1)
	wantInvalid(t, "no published fields", err, "there are no tokens")
	_, err = m.Derive(Digest{}, 1, tokens[:len(tokens)-1])
	wantInvalid(t, "cut tokens", err, "tokens has 11999 bytes, but num_tokens is 3000, which makes 12000")
	_, err = m.Derive(Digest{}, 0, tokens)
	wantInvalid(t, "no ranks", err, "world size")
	tokens[4*2999+3] |= 0x80
	_, err = m.Derive(Digest{}, 1, tokens)
	wantInvalid(t, "a large token", err, "token 2999 is not below 2^31")
	many, err := ParseManifest(manifestOf(2, MaxPositions, 1, "recurrent"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = many.Derive(Digest{}, MaxWorldSize, testTokens(1, 1))
	wantInvalid(t, "many pages", err, "2097152 pages for each of 1024 ranks")
}

// The page digests of many positions make a published manifest longer than
// what an engine may write; it can be restored all the same.
func TestRestoreLongerThanWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("large inputs")
	}
	const positions = 300_000
	m, err := ParseManifest(manifestOf(1, positions, positions, "attention"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.Derive(Digest{9}, 1, testTokens(positions, 1))
	if err != nil {
		t.Fatal(err)
	}
	published, err := m.PublishedJSON(Digest{9}, 1, d)
	if err != nil || len(published) <= MaxManifestBytes {
		t.Fatalf("published %d bytes, %v", len(published), err)
	}
	checkRoundTrip(t, m, Digest{9}, 1, d)
}
