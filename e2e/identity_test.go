package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Section 2: identity documents.

// badIdentities are documents that must be refused.
func badIdentities() map[string][]byte {
	with := func(key string, v any) []byte {
		doc := newIdentity("bad", 2).Doc
		doc[key] = v
		return spaced(doc)
	}
	without := func(key string) []byte {
		doc := newIdentity("bad", 2).Doc
		delete(doc, key)
		return spaced(doc)
	}
	raw := func(old, new string) []byte {
		return bytes.Replace(spaced(newIdentity("bad", 2).Doc), []byte(old), []byte(new), 1)
	}
	return map[string][]byte{
		"no schema_version":      without("schema_version"),
		"no target_revision":     without("target_revision"),
		"no draft_revision":      without("draft_revision"),
		"no source_revision":     without("source_revision"),
		"no layout":              without("layout"),
		"empty layout":           with("layout", object{}),
		"layout not an object":   with("layout", []any{1}),
		"no parallel":            without("parallel"),
		"no world size":          with("parallel", object{"tensor": 2}),
		"world size 0":           with("parallel", object{"world_size": 0}),
		"world size 1025":        with("parallel", object{"world_size": 1025}),
		"world size in words":    with("parallel", object{"world_size": "2"}),
		"branch":                 with("target_revision", "main"),
		"latest":                 with("source_revision", "latest"),
		"path":                   with("target_revision", "/models/llama"),
		"tag":                    with("draft_revision", "v1.0"),
		"adapter on a branch":    with("adapter_revision", "main"),
		"39 digits":              with("target_revision", hexOf(39)),
		"41 digits":              with("target_revision", hexOf(41)),
		"empty target":           with("target_revision", ""),
		"unknown prefix":         with("target_revision", "sha1:"+hexOf(40)),
		"not hexadecimal":        with("target_revision", strings.Repeat("g", 40)),
		"float":                  raw(`"heads": 8`, `"heads": 8.5`),
		"float that is whole":    raw(`"heads": 8`, `"heads": 8.0`),
		"exponent":               raw(`"heads": 8`, `"heads": 8e0`),
		"duplicate key":          raw(`"heads": 8`, `"heads": 8, "heads": 8`),
		"duplicate key, escaped": raw(`"heads": 8`, `"heads": 8, "\u0068eads": 8`),
		"invalid UTF-8":          raw("bf16", "bf\xff16"),
		"lone surrogate":         raw("bf16", `bf\ud80016`),
		"control character":      raw("bf16", "bf\x0116"),
		"trailing data":          append(spaced(newIdentity("bad", 2).Doc), "{}"...),
		"cut off":                spaced(newIdentity("bad", 2).Doc)[:100],
		"a list":                 []byte("[]"),
		"null":                   []byte("null"),
		"no JSON":                []byte("hello\n"),
	}
}

func TestIdentify(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		model := m.addModel(t, "model")
		id := newIdentity("salt \"\\\b\x01é\u2028<&>", 4)
		for _, form := range [][]byte{spaced(id.Doc), canonical(id.Doc)} {
			name, err := identify(model, form)
			must(t, err)
			if name != id.dir() {
				t.Errorf("got %q, want %q", name, id.dir())
			}
		}
		doc, err := os.ReadFile(filepath.Join(model, id.dir(), "identity.json"))
		must(t, err)
		if !bytes.Equal(canonical(decode(t, doc)), canonical(id.Doc)) {
			t.Errorf("identity.json is %s", doc)
		}
		// Every field counts, those that the contract does not name too.
		other := newIdentity("x", 4)
		other.Doc["later_field"] = object{"a": []any{1, "two", nil, true}}
		other.Doc["adapter_revision"] = "sha256:" + hexOf(64)
		name, err := identify(model, spaced(other.Doc))
		must(t, err)
		if name != other.dir() || len(names(t, model)) != 2 {
			t.Errorf("got %q, want %q; listing %q", name, other.dir(), names(t, model))
		}
	})
}

func TestIdentifyRefuses(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		model := m.addModel(t, "model")
		for what, doc := range badIdentities() {
			_, err := identify(model, doc)
			wantErrno(t, what, err, syscall.EINVAL)
		}
		if got := names(t, model); len(got) != 0 {
			t.Errorf("refused documents left %q", got)
		}
		// One handle: an error, then a right document, then another.
		f, err := os.OpenFile(filepath.Join(model, ".identify"), os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		if _, err = f.Write([]byte("nonsense\n")); err == nil {
			_, err = readReply(f)
		}
		wantErrno(t, "nonsense", err, syscall.EINVAL)
		for _, salt := range []string{"a", "b", "a"} {
			id := newIdentity(salt, 1)
			_, err = f.Write(spaced(id.Doc))
			must(t, err)
			got, err := readReply(f)
			must(t, err)
			if got != id.dir()+"\n" {
				t.Errorf("got %q, want %q", got, id.dir()+"\n")
			}
		}
	})
}

// TestIdentityByHand restores an identity as a backup does.
func TestIdentityByHand(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		model := m.addModel(t, "model")
		id := newIdentity("by hand", 1)
		ident := filepath.Join(model, id.dir())
		must(t, os.Mkdir(ident, 0o755))
		wantErrno(t, "the same again", os.Mkdir(ident, 0o755), syscall.EEXIST)
		g := tinyGeneration(id, conversation(1, 10))
		s := staging{ident: ident, name: "early", g: g}
		wantErrno(t, "staging without a document", os.Mkdir(s.path(), 0o755), syscall.EPERM)

		file := filepath.Join(ident, "identity.json")
		for what, doc := range badIdentities() {
			wantErrno(t, what, os.WriteFile(file, doc, 0o644), syscall.EINVAL)
		}
		wantErrno(t, "another identity's document", os.WriteFile(file, spaced(newIdentity("x", 1).Doc), 0o644), syscall.EINVAL)
		wantErrno(t, "staging with a refused document", os.Mkdir(s.path(), 0o755), syscall.EPERM)

		must(t, os.WriteFile(file, spaced(id.Doc), 0o644))
		publish(t, ident, g)
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		// From now on the document is what everything below rests on.
		if err := os.WriteFile(file, spaced(newIdentity("x", 1).Doc), 0o644); err == nil {
			t.Error("an accepted document was overwritten")
		}
		if name, err := identify(model, spaced(id.Doc)); err != nil || name != id.dir() {
			t.Errorf(".identify of a directory made by hand: %q, %v", name, err)
		}
	})
}

// TestIdentitiesApart: two identities share no page and no lookup.
func TestIdentitiesApart(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		a, b := newIdentity("a", 1), newIdentity("b", 1)
		identA, identB := m.addIdentity(t, "model", a), m.addIdentity(t, "model", b)
		tokens := conversation(1, 600)
		publish(t, identA, smallGeneration(a, tokens))
		if got := ask(t, identB, tokens); got.Generation != "" {
			t.Errorf("another identity's generation was found: %v", got)
		}
		g := smallGeneration(b, tokens)
		s := beginStaging(t, identB, "s", g)
		p, err := s.plan()
		must(t, err)
		if len(p.Missing) != len(g.pages()) {
			t.Errorf("%d pages are missing, want all %d", len(p.Missing), len(g.pages()))
		}
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), g))
	})
}

// TestDocumentRemovedUnderAStaging: nothing is published until it is there again.
func TestDocumentRemovedUnderAStaging(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("removed", 2)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		s := beginStaging(t, ident, "s", g)
		s.complete(t)
		must(t, os.Remove(filepath.Join(ident, "identity.json")))
		wantErrno(t, "publishing without a document", s.rename(), syscall.EPERM)
		m.addIdentity(t, "model", id)
		must(t, s.rename())
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		page := g.pages()[0]
		wantXattr(t, filepath.Join(ident, g.name(), page.path), "key", page.key.hex())
	})
}
