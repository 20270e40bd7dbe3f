package staging

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/index"
	"ckptfs/pages"
)

// family is the model of contract section 8: generations over a tree of tokens.
// Its rules look at all of them, by their tokens.
type family struct {
	path     string
	x        *index.Index
	identity *index.Identity
	members  []*member // published, in order
	clock    int64
}

type member struct {
	g          *index.Generation
	tokens     string // of letters
	request    string
	kind       string
	superseded *member // by what
	supers     bool
	fork       bool
}

const familyDocument = `{"schema_version":1,"target_revision":"3b1f0c9d2e4a5b6c7d8e9f00112233445566778a","draft_revision":"","source_revision":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b","layout":{"a":1},"parallel":{"world_size":1}}`

func (f *family) open(t *rapid.T) {
	var err error
	if f.x, err = index.Open(f.path, index.Options{}); err != nil {
		t.Fatal(err)
	}
	if f.identity == nil {
		m, err := f.x.CreateModel("m", index.Attr{Mode: 0o755}, 0)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := index.ParseDocument([]byte(familyDocument))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.x.CreateIdentity(m, doc.Name(), doc, index.Attr{Mode: 0o755}, 0); err != nil {
			t.Fatal(err)
		}
	}
	f.identity = f.x.Models(0, 1)[0].Identities(0, 1)[0]
	for _, m := range f.members {
		m.g = f.x.GenerationByID(m.g.ID)
	}
}

// encode makes each letter 100 tokens, so that prefixes end in several units.
func encode(letters string) []byte {
	var b []byte
	for _, l := range []byte(letters) {
		b = append(b, strings.Repeat(string([]byte{l, 0, 0, 0}), 100)...)
	}
	return b
}

// publish publishes what a staging would, accepted when nothing was published
// meanwhile.
func (f *family) publish(t *rapid.T, m *member) {
	manifest, err := index.ParseManifest(fmt.Appendf(nil, `{"schema_version":2,"kind":%q,"request":%q,"num_tokens":%d,"draft_prefix_len":0,"x":%d,
		"page_groups":[{"name":"s","role":"recurrent","page_bytes":1,"positions":[0]}]}`, m.kind, m.request, 100*len(m.tokens), f.clock))
	if err != nil {
		t.Fatal(err)
	}
	doc, tokens := f.identity.Document(), encode(m.tokens)
	derived, err := manifest.Derive(doc.Digest, 1, tokens)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := index.NewChain(doc.Digest, tokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	published, err := manifest.PublishedJSON(doc.Digest, 1, derived)
	if err != nil {
		t.Fatal(err)
	}
	p := &index.Publication{
		ID: f.x.NextID(), Identity: f.identity, Manifest: manifest, Derived: derived, Published: f.clock,
		Contents:  &index.Contents{Manifest: published, Layout: manifest.Layout(1)},
		Supersede: supersede, Prefixes: []index.ObjectID{1 << 40}, // of a staging that was given up
	}
	id := pages.ID(f.x.NextID())
	p.Contents.Pages = []pages.ID{id}
	p.NewPages = []index.NewPage{{ID: id, Key: derived.Keys[0], Bytes: 1}}
	for _, a := range f.identity.Prefixes(chain) {
		p.Prefixes = append(p.Prefixes, a.ID)
	}
	if m.g, _, err = f.x.Publish(p); err != nil {
		t.Fatal(err)
	}
}

// supersede is section 8 by brute force.
func (f *family) supersede(p *member) {
	var parent *member
	ancestor := func(a *member) bool {
		return a.request != p.request && len(a.tokens) < len(p.tokens) && strings.HasPrefix(p.tokens, a.tokens)
	}
	for _, a := range f.members {
		if ancestor(a) && (parent == nil || len(a.tokens) >= len(parent.tokens)) {
			parent = a
		}
	}
	for _, a := range f.members {
		sibling := slices.ContainsFunc(f.members, func(b *member) bool { return ancestor(b) && b.request == a.request })
		passed := sibling && !ancestor(a) && len(a.tokens) < len(p.tokens) && a.kind != "instruction"
		if (ancestor(a) && a != parent && a.kind != "instruction" || passed) && !a.supers {
			a.supers, a.superseded = true, p
		}
	}
	if parent != nil {
		parent.fork, parent.supers, parent.superseded = true, false, nil
	}
}

func (f *family) check(t *rapid.T) {
	for _, m := range f.members {
		want := map[[2]bool]index.State{{false, false}: index.Current, {true, false}: index.Superseded, {false, true}: index.Fork, {true, true}: index.PassedFork}[[2]bool{m.supers, m.fork}]
		var by index.ObjectID
		if m.superseded != nil {
			by = m.superseded.g.ID
		}
		if m.g.State() != want || m.g.SupersededBy() != by {
			t.Fatalf("%s %s of %s is %v by %d, want %v by %d", m.kind, m.tokens, m.request, m.g.State(), m.g.SupersededBy(), want, by)
		}
	}
	if problems := f.x.Check(); len(problems) > 0 {
		t.Fatal(problems)
	}
}

func TestSupersessionIsWhatTheModelSays(t *testing.T) {
	if testing.Short() {
		t.Skip("many stores")
	}
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		f := &family{path: filepath.Join(dir, fmt.Sprint(n))}
		f.open(rt)
		defer func() { f.x.Close(); os.Remove(f.path) }()
		any := func(rt *rapid.T) *member {
			if len(f.members) == 0 {
				rt.Skip("nothing is published")
			}
			return rapid.SampledFrom(f.members).Draw(rt, "member")
		}
		publish := func(rt *rapid.T) {
			f.clock++
			m := &member{
				tokens:  rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 5, -1).Draw(rt, "tokens"),
				request: rapid.SampledFrom([]string{"r", "s", "t", "u"}).Draw(rt, "request"),
				kind:    rapid.SampledFrom([]string{"prompt", "prompt", "response", "instruction"}).Draw(rt, "kind"),
			}
			f.publish(rt, m)
			if m.kind == "prompt" {
				f.supersede(m)
			}
			f.members = append(f.members, m)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish":       publish,
			"publish again": publish,
			"hit": func(rt *rapid.T) {
				m := any(rt)
				f.clock++
				f.x.Touch(m.g, f.clock)
				m.supers, m.superseded = false, nil
			},
			"retire": func(rt *rapid.T) {
				m := any(rt)
				if _, err := f.x.Retire([]*index.Generation{m.g}, "a test", f.clock, 0, nil); err != nil {
					rt.Fatal(err)
				}
				f.members = slices.DeleteFunc(f.members, func(o *member) bool { return o == m })
			},
			"reopen": func(rt *rapid.T) {
				if err := f.x.Close(); err != nil {
					rt.Fatal(err)
				}
				f.open(rt)
			},
			"": f.check,
		})
	})
}
