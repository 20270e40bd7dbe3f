package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
)

// edit is a change of a JSON object before a test uses it.
type edit func(o map[string]any)

// with sets a field, which may be inside others: "parallel.world_size".
func with(path string, value any) edit {
	return func(o map[string]any) {
		parent, key := descend(o, path)
		parent[key] = value
	}
}

// without removes a field.
func without(path string) edit {
	return func(o map[string]any) {
		parent, key := descend(o, path)
		delete(parent, key)
	}
}

func descend(o map[string]any, path string) (map[string]any, string) {
	keys := strings.Split(path, ".")
	for _, k := range keys[:len(keys)-1] {
		switch v := o[k].(type) {
		case map[string]any:
			o = v
		case []any:
			o = v[0].(map[string]any)
		}
	}
	return o, keys[len(keys)-1]
}

// editJSON applies edits to a copy of a JSON object.
func editJSON(t testing.TB, text string, edits ...edit) []byte {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		e(o)
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const hex40 = "0123456789abcdef0123456789abcdef01234567"

const testDocument = `{"schema_version":1,"target_revision":"` + hex40 + `","draft_revision":"","source_revision":"git:` + hex40 + `",
	"layout":{"dtype":"bf16"},"parallel":{"world_size":4}}`

func TestParseDocument(t *testing.T) {
	hex64 := strings.Repeat("ab", 32)
	for _, edits := range [][]edit{
		nil,
		{with("draft_revision", hex64), with("adapter_revision", "sha256:"+hex64)},
		{with("target_revision", "git:"+hex64), with("source_revision", strings.ToUpper(hex40))},
		{with("parallel.world_size", 1), with("parallel.pipeline", 2)},
		{with("parallel.world_size", 1024), with("schema_version", 7)},
		{with("cache_salt", ""), with("anything", []any{nil, map[string]any{}})},
	} {
		raw := editJSON(t, testDocument, edits...)
		d, err := ParseDocument(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if d.Digest != sha256.Sum256(d.Doc) || d.Name() != d.Digest.Hex()[:40] {
			t.Errorf("%s: digest %s, name %s", raw, d.Digest, d.Name())
		}
		if again, err := ParseDocument(d.Doc); err != nil || !bytes.Equal(again.Doc, d.Doc) {
			t.Errorf("%s: the canonical form gives %s, %v", raw, again.Doc, err)
		}
	}
}

func TestParseDocumentRefuses(t *testing.T) {
	for _, c := range []struct {
		edits []edit
		want  string
	}{
		{[]edit{without("schema_version")}, "schema_version is missing"},
		{[]edit{with("schema_version", "1")}, "schema_version must be an integer"},
		{[]edit{with("schema_version", json.Number("123456789012345678901"))}, "schema_version must be an integer"},
		{[]edit{without("target_revision")}, "target_revision is missing"},
		{[]edit{with("target_revision", "")}, "target_revision must be a digest"},
		{[]edit{with("target_revision", "main")}, "not \"main\"; a branch"},
		{[]edit{with("target_revision", "latest")}, "a tag"},
		{[]edit{with("target_revision", hex40[1:])}, "40 or 64 hex digits"},
		{[]edit{with("target_revision", hex40+"0")}, "40 or 64 hex digits"},
		{[]edit{with("target_revision", hex40[1:]+"g")}, "40 or 64 hex digits"},
		{[]edit{with("target_revision", "sha1:"+hex40)}, "40 or 64 hex digits"},
		{[]edit{with("target_revision", "git:git:"+hex40)}, "40 or 64 hex digits"},
		{[]edit{with("target_revision", "/models/x")}, "a path"},
		{[]edit{with("target_revision", nil)}, "not null"},
		{[]edit{without("draft_revision")}, "draft_revision is missing"},
		{[]edit{with("draft_revision", "git:")}, "draft_revision must be"},
		{[]edit{without("source_revision")}, "source_revision is missing"},
		{[]edit{with("adapter_revision", "")}, "adapter_revision must be"},
		{[]edit{with("adapter_revision", nil)}, "adapter_revision must be"},
		{[]edit{without("layout")}, "layout is missing"},
		{[]edit{with("layout", map[string]any{})}, "layout must not be empty"},
		{[]edit{with("layout", []int{1})}, "layout must be an object"},
		{[]edit{without("parallel")}, "parallel is missing"},
		{[]edit{with("parallel", 4)}, "parallel must be an object"},
		{[]edit{without("parallel.world_size")}, "parallel.world_size is missing"},
		{[]edit{with("parallel.world_size", 0)}, "from 1 to 1024, not 0"},
		{[]edit{with("parallel.world_size", 1025)}, "from 1 to 1024, not 1025"},
		{[]edit{with("parallel.world_size", true)}, "from 1 to 1024, not true"},
		{[]edit{with("extra", 0.5)}, "extra (byte"},
		{[]edit{with("extra", strings.Repeat("x", MaxDocumentBytes))}, "more than"},
	} {
		raw := editJSON(t, testDocument, c.edits...)
		_, err := ParseDocument(raw)
		wantInvalid(t, string(raw), err, c.want)
	}
	for _, raw := range []string{``, `[]`, `null`, `"x"`, `{}`, testDocument + "x"} {
		if d, err := ParseDocument([]byte(raw)); err == nil || d != nil {
			t.Errorf("%q is accepted", raw)
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(testDocument))
	f.Add(editJSON(f, testDocument, with("adapter_revision", hex40), with("cache_salt", "é\x01")))
	f.Add([]byte(`{"layout":{},"parallel":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDocument(b)
		if err != nil {
			return
		}
		if d.WorldSize < 1 || d.WorldSize > MaxWorldSize || len(d.Name()) != 40 {
			t.Fatalf("%q gives %+v", b, d)
		}
		again, err := ParseDocument(d.Doc)
		if err != nil || again.Digest != d.Digest {
			t.Fatalf("%q: canonical form %q gives %v, %v", b, d.Doc, again, err)
		}
	})
}
