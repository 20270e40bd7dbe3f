package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Section 3, steps 1 and 2: tokens, manifest, limits.

// firstGroup changes a field of the manifest's first group.
func firstGroup(key string, v any) func(object) {
	return func(m object) { m["page_groups"].([]any)[0].(object)[key] = v }
}

func field(key string, v any) func(object) {
	return func(m object) {
		if v == nil {
			delete(m, key)
		} else {
			m[key] = v
		}
	}
}

// badManifests change a right manifest (of 1,000 tokens) into one that must be refused.
func badManifests() map[string]func(object) {
	return map[string]func(object){
		"no schema_version":         field("schema_version", nil),
		"schema 0":                  field("schema_version", 0),
		"schema 3":                  field("schema_version", 3),
		"schema 1 without nonce":    field("schema_version", 1),
		"no kind":                   field("kind", nil),
		"unknown kind":              field("kind", "question"),
		"no request":                field("request", nil),
		"empty request":             field("request", ""),
		"request too long":          field("request", strings.Repeat("r", 129)),
		"no num_tokens":             field("num_tokens", nil),
		"fewer tokens than written": field("num_tokens", 999),
		"more tokens than written":  field("num_tokens", 1001),
		"0 tokens":                  field("num_tokens", 0),
		"negative tokens":           field("num_tokens", -1),
		"too many tokens":           field("num_tokens", 4194305),
		"no groups":                 field("page_groups", nil),
		"groups not a list":         field("page_groups", object{}),
		"draft_prefix_len < 0":      field("draft_prefix_len", -1),
		"media not increasing":      field("media", []any{object{"at": 5, "digest": hexOf(40)}, object{"at": 5, "digest": hexOf(40)}}),
		"media digest":              field("media", []any{object{"at": 5, "digest": "cat.jpg"}}),
		"no group name":             firstGroup("name", ""),
		"group name with a dot":     firstGroup("name", ".hidden"),
		"group name with a slash":   firstGroup("name", "a/b"),
		"group name with a NUL":     firstGroup("name", "a\x00b"),
		"group name too long":       firstGroup("name", strings.Repeat("g", 256)),
		"group name twice":          firstGroup("name", "target.recurrent.0"),
		"unknown role":              firstGroup("role", "magic"),
		"no page_tokens":            func(m object) { delete(m["page_groups"].([]any)[0].(object), "page_tokens") },
		"page_tokens 0":             firstGroup("page_tokens", 0),
		"page of 0 bytes":           firstGroup("page_bytes", 0),
		"page too large":            firstGroup("page_bytes", 1<<30+1),
		"page_bytes in words":       firstGroup("page_bytes", "4096"),
		"positions fall":            firstGroup("positions", []int{0, 2, 1}),
		"position twice":            firstGroup("positions", []int{0, 1, 1}),
		"negative position":         firstGroup("positions", []int{-1, 0}),
	}
}

func TestManifestRefused(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("manifest", 2)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		check := func(what string, doc []byte) {
			s := staging{ident: ident, name: "s", g: g}
			must(t, os.Mkdir(s.path(), 0o755))
			must(t, os.WriteFile(s.file("tokens"), tokenBytes(g.Tokens), 0o644))
			wantErrno(t, what, s.writeManifest(doc), syscall.EINVAL)
			wantSentence(t, "the reason of "+what, s.reason(t))
			wantMissing(t, s.file("plan.json"))
			wantOneOf(t, "rename with a refused manifest: "+what, s.rename(), syscall.EINVAL)
			if out, err := rm(s.path()); err != nil || out != "" {
				t.Errorf("rm -r after %s: %v %s", what, err, out)
			}
		}
		for what, change := range badManifests() {
			doc := g.manifest()
			change(doc)
			check(what, spaced(doc))
		}
		good := string(spaced(g.manifest()))
		for what, text := range map[string]string{
			"empty":         "",
			"no JSON":       "manifest",
			"a list":        "[]",
			"cut off":       good[:len(good)/2],
			"trailing data": good + "{}",
			"float":         strings.Replace(good, `"num_tokens": 1000`, `"num_tokens": 1000.0`, 1),
			"exponent":      strings.Replace(good, `"num_tokens": 1000`, `"num_tokens": 1e3`, 1),
			"duplicate key": strings.Replace(good, `"num_tokens"`, `"kind": "response", "num_tokens"`, 1),
			"invalid UTF-8": strings.Replace(good, "req-1", "req-\xff", 1),
		} {
			if what != "empty" && text == good {
				t.Fatalf("%s changed nothing", what)
			}
			check(what, []byte(text))
		}
	})
}

// TestManifestChecked: fsync and rename onto manifest.json check as close does.
func TestManifestChecked(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("checked", 1)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		s := staging{ident: ident, name: "s", g: g}
		must(t, os.Mkdir(s.path(), 0o755))
		must(t, os.WriteFile(s.file("tokens"), tokenBytes(g.Tokens), 0o644))

		f, err := os.Create(s.file("manifest.json"))
		must(t, err)
		f.WriteString("{}")
		wantErrno(t, "fsync", f.Sync(), syscall.EINVAL)
		wantSentence(t, "the reason at fsync", s.reason(t))
		wantErrno(t, "close", f.Close(), syscall.EINVAL)

		must(t, os.WriteFile(s.file(".manifest.json.Xy12"), []byte("{}"), 0o600))
		wantErrno(t, "rename of a bad scratch file",
			syscall.Rename(s.file(".manifest.json.Xy12"), s.file("manifest.json")), syscall.EINVAL)
		wantSentence(t, "the reason at rename", s.reason(t))
		wantErrno(t, "page before the manifest", s.writePage(g.pages()[0], 0), syscall.EPERM)

		must(t, os.WriteFile(s.file(".manifest.json.Xy12"), spaced(g.manifest()), 0o600))
		must(t, syscall.Rename(s.file(".manifest.json.Xy12"), s.file("manifest.json")))
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), g))
	})
}

// TestManifestMended: after a refusal the right manifest can be written in its place.
func TestManifestMended(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("mended", 1)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		s := staging{ident: ident, name: "s", g: g}
		must(t, os.Mkdir(s.path(), 0o755))
		wantErrno(t, "rename of an empty staging", s.rename(), syscall.EINVAL)
		wantErrno(t, "page before the manifest", s.writePage(g.pages()[0], 0), syscall.EPERM)
		if fi, err := os.Stat(filepath.Dir(s.file(g.pages()[0].path))); err != nil || !fi.IsDir() {
			t.Errorf("directories may be made before the manifest: %v", err)
		}
		wantErrno(t, "manifest without tokens", s.writeManifest(spaced(g.manifest())), syscall.EINVAL)
		wantSentence(t, "the reason", s.reason(t))
		bad := tokenBytes(g.Tokens)
		bad[len(bad)-1] |= 0x80 // a token of 2^31 and more
		must(t, os.WriteFile(s.file("tokens"), bad, 0o644))
		wantErrno(t, "token out of range", s.writeManifest(spaced(g.manifest())), syscall.EINVAL)
		must(t, os.WriteFile(s.file("tokens"), tokenBytes(g.Tokens)[:3999], 0o644))
		wantErrno(t, "a token cut in two", s.writeManifest(spaced(g.manifest())), syscall.EINVAL)
		must(t, os.WriteFile(s.file("tokens"), tokenBytes(g.Tokens), 0o644))
		must(t, s.writeManifest(spaced(g.manifest())))
		s.complete(t)
		must(t, s.rename())
	})
}

func TestManifestLimitsReached(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("limits", 1)
		ident := m.addIdentity(t, "model", id)
		tokens := conversation(1, 600)
		tokens[0], tokens[1] = 0, 1<<31-1
		g := smallGeneration(id, tokens)
		g.Request, g.Draft, g.Kind = strings.Repeat("é", 64), 17, "instruction"
		g.Groups[0].Name = strings.Repeat("g", 255)
		g.Groups[1].Positions = []int{5, 99999999, 1 << 31}
		g.Groups[2].PageBytes = 1
		g.Extra = object{"later": []any{1, object{"b": "x", "a": nil}}}
		dir := publish(t, ident, g)
		must(t, checkGeneration(dir, g))
		if !contains(names(t, dir+"/rank-0/target.recurrent.0"), "99999999") {
			t.Error("position of 8 digits")
		}
		big := tinyGeneration(id, conversation(2, 300))
		big.Groups = nil
		for i := range 4096 {
			big.Groups = append(big.Groups, group{Name: fmt.Sprint("g", i), Role: "recurrent", PageBytes: 1, Positions: []int{0}})
		}
		s := beginStaging(t, ident, "many", big)
		must(t, os.RemoveAll(s.path()))
		big.Groups = append(big.Groups, group{Name: "more", Role: "recurrent", PageBytes: 1, Positions: []int{0}})
		s.g = big
		wantErrno(t, "4097 groups", s.begin(), syscall.EINVAL)
		must(t, os.RemoveAll(s.path()))
		must(t, os.Mkdir(s.path(), 0o755))
		must(t, os.WriteFile(s.file("tokens"), tokenBytes(tokens), 0o644))
		err := s.writeManifest(bytes.Repeat([]byte(" "), 16<<20+1))
		wantOneOf(t, "a manifest of more than 16 MiB", err, syscall.EINVAL, syscall.EFBIG)
		must(t, os.RemoveAll(s.path()))
	})
}

func TestTooManyStagings(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--max-staging", "3")
		ident := m.addIdentity(t, "model", newIdentity("many", 1))
		other := m.addIdentity(t, "model", newIdentity("others", 1))
		at := func(i int) string { return fmt.Sprintf("%s/.staging/%d", []string{ident, other}[i%2], i) }
		for i := range 3 {
			must(t, os.Mkdir(at(i), 0o755))
		}
		wantErrno(t, "a staging too many", os.Mkdir(at(3), 0o755), syscall.EAGAIN)
		must(t, os.Remove(at(0)))
		must(t, os.Mkdir(at(3), 0o755))
		for i := range 3 {
			must(t, os.Remove(at(i+1)))
		}
	})
}

// TestNoSpace: a generation that RAM can never hold is refused at once and
// evicts nothing.
func TestNoSpace(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--l1-size", "16MiB")
		id := newIdentity("space", 1)
		ident := m.addIdentity(t, "model", id)
		small := smallGeneration(id, conversation(1, 300))
		publish(t, ident, small)
		big := shapedGeneration(id, conversation(2, 2000), 1000, 8<<20)
		s := staging{ident: ident, name: "s", g: big}
		wantErrno(t, "a generation of 32 MiB in 16 MiB of RAM", s.begin(), syscall.ENOSPC)
		wantSentence(t, "the reason", s.reason(t))
		wantOneOf(t, "page of a refused manifest", s.writePage(big.pages()[0], 0), syscall.EPERM)
		must(t, checkGeneration(filepath.Join(ident, small.name()), small))
		// Nothing of it is kept: what fits still fits, in the same staging too.
		fits := shapedGeneration(id, conversation(2, 2000), 2000, 3<<20)
		s.g = fits
		must(t, s.writeManifest(spaced(fits.manifest())))
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), fits))
	})
}
