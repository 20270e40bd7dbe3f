package index

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/pages"
)

// storeModel is what the store is compared with.
type storeModel struct {
	x           *Index
	path        string
	identities  map[ObjectID]Attr
	generations map[ObjectID]*modelGeneration
	kept        map[pages.ID]pages.Key // pages without links whose rows are kept
	keys        map[pages.Key]pages.ID
	attrs       map[pages.ID]Attr
	now         int64
	recency     int64 // of the last event
	steps       int
}

type modelGeneration struct {
	identity     ObjectID
	name         string
	tokens       []byte
	pages        []pages.ID
	keys         []pages.Key
	manifest     []byte
	attr         Attr
	sub          map[uint64]Attr
	state        State
	by           ObjectID
	used         int64
	flushed      int64 // used, as a crash leaves it
	flushedState State
	flushedBy    ObjectID
}

func (m *storeModel) links() map[pages.ID]int32 {
	links := make(map[pages.ID]int32)
	for _, g := range m.generations {
		for _, id := range g.pages {
			links[id]++
		}
	}
	return links
}

// check compares everything.
func (m *storeModel) check(t *rapid.T) {
	for _, p := range m.x.Check() {
		t.Errorf("check: %v", p)
	}
	if n := m.x.Count(); n != len(m.generations) {
		t.Fatalf("%d generations, want %d", n, len(m.generations))
	}
	names := make(map[ObjectID][]ObjectID)
	for _, id := range slices.Sorted(maps.Keys(m.generations)) {
		w := m.generations[id]
		names[w.identity] = append(names[w.identity], id)
		m.checkGeneration(t, id, w)
	}
	for id, attr := range m.identities {
		i := m.x.IdentityByID(id)
		if i == nil || i.Model.Identity(i.Name) != i || i.Attr() != attr {
			t.Fatalf("identity %d: %+v, want %+v", id, i.Attr(), attr)
		}
		var listed []ObjectID
		for after := ObjectID(0); ; after = listed[len(listed)-1] {
			gs := i.Generations(after, 2)
			if len(gs) == 0 {
				break
			}
			for _, g := range gs {
				listed = append(listed, g.ID)
			}
		}
		if !slices.Equal(listed, names[id]) {
			t.Fatalf("identity %d lists %v, want %v", id, listed, names[id])
		}
	}
	m.checkPages(t)
}

func (m *storeModel) checkGeneration(t *rapid.T, id ObjectID, w *modelGeneration) {
	g := m.x.GenerationByID(id)
	if g == nil || g.Name != w.name || g.Identity.Generation(w.name) != g {
		t.Fatalf("generation %d: %v", id, g)
	}
	if g.Attr() != w.attr || g.State() != w.state || g.SupersededBy() != w.by || g.Used() != w.used {
		t.Fatalf("generation %d: %+v %v %d %d, want %+v", id, g.Attr(), g.State(), g.SupersededBy(), g.Used(), w)
	}
	c, err := m.x.Contents(g)
	if err != nil || !slices.Equal(c.Pages, w.pages) || !bytes.Equal(c.Manifest, w.manifest) {
		t.Fatalf("contents of %d: %v, %v, want %v", id, c, err, w.pages)
	}
	for sub, attr := range w.sub {
		if got, ok := m.x.SubAttr(g, sub); !ok || got != attr {
			t.Fatalf("attributes %d of %d: %v, want %v", sub, id, got, attr)
		}
	}
	res := m.x.Find(g.Identity, &FindRequest{NumTokens: g.NumTokens, Tokens: w.tokens}, func(found *Generation) Verdict {
		if found == g {
			return Take
		}
		return Skip
	})
	if res.Generation != g {
		t.Fatalf("generation %d is not found: %v", id, res)
	}
}

func (m *storeModel) checkPages(t *rapid.T) {
	links := m.links()
	rows := 0
	err := m.x.EachPage(func(r PageRow) error {
		rows++
		_, kept := m.kept[r.ID]
		if r.Links != links[r.ID] || kept != (r.Links == 0) || m.keys[r.Key] != r.ID || r.Attr != m.attrs[r.ID] {
			return fmt.Errorf("%+v: want %d links, kept %v", r, links[r.ID], kept)
		}
		p, err := m.x.Page(r.ID)
		if err != nil {
			return err
		}
		if p.Links() != r.Links || p.Key != r.Key || p.Attr() != r.Attr || p.Bytes != r.Bytes {
			return fmt.Errorf("page %+v, row %+v", p, r)
		}
		return nil
	})
	if err != nil || rows != len(links)+len(m.kept) {
		t.Fatalf("%d pages, want %d: %v", rows, len(links)+len(m.kept), err)
	}
	keys := slices.Collect(maps.Keys(m.keys))
	found, err := m.x.PagesByKey(keys)
	for n, k := range keys {
		if err != nil || found[n] == nil || found[n].ID != m.keys[k] {
			t.Fatalf("key %v: %v, %v", k, found[n], err)
		}
	}
}

func (m *storeModel) open(t *rapid.T) {
	var err error
	if m.x, err = Open(m.path, Options{CachedPages: 64, CachedContents: 2}); err != nil {
		t.Fatal(err)
	}
	m.recency = 0
	for _, w := range m.generations {
		m.recency = max(m.recency, w.used)
	}
}

// tick orders events by the clock while it goes forward.
func (m *storeModel) tick(now int64) int64 {
	m.recency = max(now, m.recency+1)
	return m.recency
}

// any draws one of the generations, nil if there is none.
func (m *storeModel) any(t *rapid.T) (*Generation, *modelGeneration) {
	if len(m.generations) == 0 {
		t.Skip()
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.generations))).Draw(t, "generation")
	return m.x.GenerationByID(id), m.generations[id]
}

func (m *storeModel) publish(t *rapid.T) {
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.identities))).Draw(t, "identity")
	i := m.x.IdentityByID(id)
	tokens := repeated(rapid.IntRange(1, 700).Draw(t, "tokens"), uint32(rapid.IntRange(0, 2).Draw(t, "first")))
	p, err := publication(m.x, i, draft{tokens: tokens, kind: rapid.SampledFrom([]Kind{KindPrompt, KindResponse}).Draw(t, "kind")})
	if err != nil {
		t.Fatal(err)
	}
	stale := rapid.Bool().Draw(t, "plan is old") // as if the pages had been planned before others were published
	if stale {
		p.NewPages = nil
		for slot, k := range p.Derived.Keys {
			n := NewPage{ID: pages.ID(m.x.NextID()), Key: k, Bytes: 4096}
			p.Contents.Pages[slot] = n.ID
			p.NewPages = append(p.NewPages, n)
		}
	}
	m.now++
	p.Published = m.now
	g, replaced, err := m.x.Publish(p)
	if i.Generation(p.Derived.Name) != nil && g == nil {
		if !errors.Is(err, ErrExist) {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range p.NewPages {
		if other, ok := replaced[n.ID]; ok {
			if m.keys[n.Key] != other {
				t.Fatalf("page %d was replaced by %d, want %d", n.ID, other, m.keys[n.Key])
			}
		} else {
			if m.keys[n.Key] != 0 {
				t.Fatalf("page %d was not replaced", n.ID)
			}
			m.keys[n.Key], m.attrs[n.ID] = n.ID, n.Attr
		}
	}
	w := &modelGeneration{
		identity: id, name: g.Name, tokens: tokens, keys: p.Derived.Keys, manifest: p.Contents.Manifest,
		attr: p.Attr, sub: make(map[uint64]Attr), used: m.tick(m.now),
	}
	w.flushed = w.used
	for _, k := range w.keys {
		w.pages = append(w.pages, m.keys[k])
		delete(m.kept, m.keys[k])
	}
	for _, s := range p.SubAttrs {
		w.sub[s.Sub] = s.Attr
	}
	m.generations[g.ID] = w
	m.touchIdentity(id)
}

func (m *storeModel) touchIdentity(id ObjectID) {
	a := m.identities[id]
	a.Mtime = m.now
	m.identities[id] = a
}

func (m *storeModel) retire(t *rapid.T) {
	m.now++
	var gs []*Generation
	retired := make(map[pages.ID]pages.Key)
	for range rapid.IntRange(1, 3).Draw(t, "count") {
		g, w := m.any(t)
		if gs = append(gs, g); w == nil || slices.Contains(gs[:len(gs)-1], g) {
			continue
		}
		for n, id := range w.pages {
			retired[id] = w.keys[n]
		}
		m.touchIdentity(w.identity)
	}
	for _, g := range gs {
		delete(m.generations, g.ID)
	}
	keep := rapid.Uint64Range(0, 3).Draw(t, "keep")
	done, err := m.x.Retire(gs, "for a test", m.now, 0, func(id pages.ID) bool { return uint64(id)%4 < keep })
	if err != nil {
		t.Fatal(err)
	}
	links := m.links()
	changed, dropped := 0, 0
	for id, k := range retired {
		switch {
		case links[id] > 0:
			changed++
		case uint64(id)%4 < keep:
			changed++
			m.kept[id] = k
		default:
			dropped++
			delete(m.keys, k)
			delete(m.attrs, id)
		}
	}
	if len(done.Changed) != changed || len(done.Dropped) != dropped {
		t.Fatalf("%d pages changed, %d dropped, want %d and %d", len(done.Changed), len(done.Dropped), changed, dropped)
	}
}

// whoLinks asks for the generations of a page.
func (m *storeModel) whoLinks(t *rapid.T) {
	_, w := m.any(t)
	page := rapid.SampledFrom(w.pages).Draw(t, "page")
	var want []ObjectID
	for id, g := range m.generations {
		if slices.Contains(g.pages, page) {
			want = append(want, id)
		}
	}
	gs, err := m.x.Linking(page)
	var got []ObjectID
	for n, g := range gs {
		got = append(got, g.ID)
		if n > 0 && gs[n-1].Order() <= g.Order() {
			t.Errorf("%s comes after %s, which was published before it", g.Name, gs[n-1].Name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("page %d is linked by %v (%v), want %v", page, got, err, want)
	}
}

func TestStoreIsWhatTheModelSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &storeModel{
			path:       filepath.Join(t.TempDir(), "index.db"),
			identities: make(map[ObjectID]Attr), generations: make(map[ObjectID]*modelGeneration),
			kept: make(map[pages.ID]pages.Key), keys: make(map[pages.Key]pages.ID), attrs: make(map[pages.ID]Attr), now: 100,
		}
		m.open(rt)
		defer func() { m.x.Close() }()
		for n := range 2 {
			i := newIdentity(t, m.x, fmt.Sprint(n))
			m.identities[i.ID] = i.Attr()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish":       m.publish,
			"publish again": m.publish,
			"retire":        m.retire,
			"drop": func(rt *rapid.T) {
				var ids []pages.ID
				for id := range m.attrs {
					ids = append(ids, id)
				}
				dropped, err := m.x.DropPages(ids) // those with links stay
				if err != nil || len(dropped) != len(m.kept) {
					rt.Fatalf("%d pages dropped, want %d: %v", len(dropped), len(m.kept), err)
				}
				for id, k := range m.kept {
					delete(m.keys, k)
					delete(m.attrs, id)
				}
				clear(m.kept)
			},
			"attributes": func(rt *rapid.T) {
				g, w := m.any(rt)
				a := Attr{Mode: rapid.Uint32Range(0, 0o7777).Draw(rt, "mode"), UID: rapid.Uint32().Draw(rt, "uid"), GID: 3, Mtime: rapid.Int64().Draw(rt, "mtime")}
				set := func(Attr) Attr { return a }
				p, err := m.x.Page(w.pages[0])
				if err != nil {
					rt.Fatal(err)
				}
				if err := errors.Join(m.x.SetGenerationAttr(g, set), m.x.SetSubAttr(g, 4, set), m.x.SetPageAttr(p, set), m.x.SetIdentityAttr(g.Identity, set)); err != nil {
					rt.Fatal(err)
				}
				w.attr, w.sub[4], m.attrs[p.ID], m.identities[w.identity] = a, a, a, a
			},
			"who links": m.whoLinks,
			"state": func(rt *rapid.T) {
				g, w := m.any(rt)
				w.state, w.by = rapid.SampledFrom([]State{Current, Superseded, Fork, PassedFork}).Draw(rt, "state"), ObjectID(rapid.IntRange(0, 9).Draw(rt, "by"))
				w.flushedState, w.flushedBy = w.state, w.by
				if err := m.x.SetState([]StateChange{{g, w.state, w.by}}); err != nil {
					rt.Fatal(err)
				}
			},
			"touch": func(rt *rapid.T) {
				g, w := m.any(rt)
				m.now += rapid.Int64Range(-3, 3).Draw(rt, "clock")
				w.used = m.tick(m.now)
				again := m.x.Touch(g, m.now)
				if again != (w.state == Superseded || w.state == PassedFork) {
					rt.Fatalf("Touch of one that is %v says %v", w.state, again)
				}
				w.state, w.by = lookedUp(w.state, w.by)
			},
			"flush": func(rt *rapid.T) {
				if err := m.x.FlushTouched(); err != nil {
					rt.Fatal(err)
				}
				for _, w := range m.generations {
					w.flushed, w.flushedState, w.flushedBy = w.used, w.state, w.by
				}
			},
			"reopen": func(rt *rapid.T) {
				if err := m.x.Close(); err != nil {
					rt.Fatal(err)
				}
				m.open(rt)
				for _, w := range m.generations {
					w.flushed, w.flushedState, w.flushedBy = w.used, w.state, w.by
				}
			},
			"crash": func(rt *rapid.T) {
				next := m.x.NextID()
				path := copyStore(t, m.path)
				m.x.Close()
				m.path = path
				for _, w := range m.generations {
					w.used, w.state, w.by = w.flushed, w.flushedState, w.flushedBy
				}
				m.open(rt)
				if id := m.x.NextID(); id <= next {
					rt.Fatalf("id %d after %d", id, next)
				}
			},
			"": func(rt *rapid.T) {
				if m.steps++; m.steps%8 == 0 { // it takes as long as many of them
					m.check(rt)
				}
			},
		})
		m.check(rt)
	})
}

// lookedUp is the state after a lookup has returned the generation.
func lookedUp(s State, by ObjectID) (State, ObjectID) {
	switch s {
	case Superseded:
		return Current, 0
	case PassedFork:
		return Fork, 0
	}
	return s, by
}
