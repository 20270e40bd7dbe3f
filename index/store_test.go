package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"ckptfs/pages"
)

// testWorldSize is the ranks of the identities in these tests.
const testWorldSize = 2

// openStore opens an index, and at the end of the test checks and closes it.
func openStore(t testing.TB, path string) *Index {
	t.Helper()
	x, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if x.writer.mu.closed {
			return
		}
		mustCheck(t, x)
		mustClose(t, x)
	})
	return x
}

func newStore(t testing.TB) *Index {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "index.db"))
}

func mustCheck(t testing.TB, x *Index) {
	t.Helper()
	for _, p := range x.Check() {
		t.Error(p)
	}
}

func mustClose(t testing.TB, x *Index) {
	t.Helper()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// must returns v, or ends the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newIdentity makes a model, if need be, and an identity in it.
func newIdentity(t testing.TB, x *Index, salt string) *Identity {
	t.Helper()
	m := x.Model("org--model")
	if m == nil {
		m = must(x.CreateModel("org--model", Attr{Mode: 0o755}, 0))
	}
	const revision = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	doc := must(ParseDocument(fmt.Appendf(nil, `{"schema_version":1,"target_revision":%q,"draft_revision":"",
		"source_revision":%q,"cache_salt":%q,"layout":{"x":1},"parallel":{"world_size":%d}}`,
		revision, revision, salt, testWorldSize)))
	return must(x.CreateIdentity(m, doc.Name(), doc, Attr{Mode: 0o755, Mtime: 1}, 0))
}

// tokensOf makes tokens of their values.
func tokensOf(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// repeated returns n tokens that count from first on.
func repeated(n int, first uint32) []byte {
	values := make([]uint32, n)
	for i := range values {
		values[i] = first + uint32(i)
	}
	return tokensOf(values...)
}

// draft is a generation as a staging would describe it.
type draft struct {
	tokens    []byte
	kind      Kind
	request   string
	media     string // JSON, "" for none
	extra     string // a further field of the manifest, so that equal tokens give another generation
	pageBytes int64
	restored  bool // published without its tokens
}

func (d draft) manifest() []byte {
	n := len(d.tokens) / tokenBytes
	const pageTokens = 128
	positions := []byte("0")
	for p := 1; p*pageTokens < n; p++ {
		positions = fmt.Appendf(positions, ",%d", p)
	}
	var rest string
	if d.media != "" {
		rest += `,"media":` + d.media
	}
	if d.extra != "" {
		rest += `,"extra":"` + d.extra + `"`
	}
	return fmt.Appendf(nil, `{"schema_version":2,"kind":%q,"request":%q,"num_tokens":%d,"draft_prefix_len":0,"page_groups":[
		{"name":"attention","role":"attention","page_tokens":%d,"page_bytes":%d,"positions":[%s]},
		{"name":"recurrent","role":"recurrent","page_bytes":%d,"positions":[7]}]%s}`,
		d.kind, d.request, n, pageTokens, d.pageBytes, positions, d.pageBytes, rest)
}

// publication plans a draft as the filesystem does: pages that are there are
// shared, others get new ids.
func publication(x *Index, i *Identity, d draft) (*Publication, error) {
	if d.kind == "" {
		d.kind = KindPrompt
	}
	if d.request == "" {
		d.request = "req-1"
	}
	if d.pageBytes == 0 {
		d.pageBytes = 4096
	}
	doc := i.Document()
	m, err := ParseManifest(d.manifest())
	if err != nil {
		return nil, err
	}
	derived, err := m.Derive(doc.Digest, doc.WorldSize, d.tokens)
	if err != nil {
		return nil, err
	}
	published, err := m.PublishedJSON(doc.Digest, doc.WorldSize, derived)
	if err != nil {
		return nil, err
	}
	if d.restored {
		if m, err = ParseManifest(published); err != nil {
			return nil, err
		}
		if derived, err = m.DeriveRestored(doc.Digest, doc.WorldSize); err != nil {
			return nil, err
		}
	}
	derived.InModel(i.Model.Name)
	p := &Publication{
		ID: x.NextID(), Identity: i, Manifest: m, Derived: derived,
		Contents:  &Contents{Manifest: published, Layout: m.Layout(doc.WorldSize)},
		Attr:      Attr{Mode: 0o755, UID: 1, GID: 2, Mtime: 3},
		SubAttrs:  []SubAttr{{Sub: 9, Attr: Attr{Mode: 0o700, Mtime: -5}}, {Sub: 1, Attr: Attr{Mode: 0o750, UID: 7, Mtime: 1 << 60}}},
		Published: int64(1000 + x.nextSeq),
	}
	there, err := x.PagesByKey(derived.Keys)
	if err != nil {
		return nil, err
	}
	for slot, k := range derived.Keys {
		if there[slot] != nil {
			p.Contents.Pages = append(p.Contents.Pages, there[slot].ID)
			continue
		}
		id := pages.ID(x.NextID())
		p.Contents.Pages = append(p.Contents.Pages, id)
		p.NewPages = append(p.NewPages, NewPage{ID: id, Key: k, Bytes: d.pageBytes, Attr: Attr{Mode: 0o444, UID: 5, Mtime: int64(slot)}})
	}
	return p, nil
}

func publish(t testing.TB, x *Index, i *Identity, d draft) *Generation {
	t.Helper()
	g, _, err := x.Publish(must(publication(x, i, d)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestPublishSharesPages(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	tokens := repeated(1000, 0)
	short := publish(t, x, i, draft{tokens: tokens[:600*tokenBytes]})
	long := publish(t, x, i, draft{tokens: tokens, kind: KindResponse})

	if got := i.Generation(short.Name); got != short {
		t.Errorf("by name: %v", got)
	}
	if got := x.GenerationByID(long.ID); got != long {
		t.Errorf("by id: %v", got)
	}
	if got := i.Generations(0, 10); !slices.Equal(got, []*Generation{short, long}) {
		t.Errorf("listing: %v", got)
	}
	if got := i.Generations(short.ID, 10); !slices.Equal(got, []*Generation{long}) {
		t.Errorf("listing after the first: %v", got)
	}
	// 600 tokens are 4 full pages of 128 and a partial one, for each rank.
	a, b := must(x.Contents(short)), must(x.Contents(long))
	shared := 0
	for _, id := range a.Pages {
		p := must(x.Page(id))
		want := int32(1)
		if slices.Contains(b.Pages, id) {
			shared++
			want = 2
		}
		if p.Links() != want {
			t.Errorf("page %d has %d links, want %d", id, p.Links(), want)
		}
	}
	if shared != 4*testWorldSize {
		t.Errorf("%d pages are shared, want %d", shared, 4*testWorldSize)
	}
	if _, _, err := x.Publish(must(publication(x, i, draft{tokens: tokens, kind: KindResponse}))); !errors.Is(err, ErrExist) {
		t.Errorf("publishing it again: %v", err)
	}
}

func TestPublishReplacesPagesThatAreThereByNow(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	first := must(publication(x, i, draft{tokens: repeated(600, 0)}))
	second := must(publication(x, i, draft{tokens: repeated(601, 0)})) // planned before the first is published
	_, replaced, err := x.Publish(first)
	if err != nil || len(replaced) != 0 {
		t.Fatal(replaced, err)
	}
	planned := slices.Clone(second.Contents.Pages)
	g, replaced, err := x.Publish(second)
	if err != nil {
		t.Fatal(err)
	}
	if len(replaced) != 4*testWorldSize {
		t.Errorf("%d pages were replaced, want %d", len(replaced), 4*testWorldSize)
	}
	for slot, id := range must(x.Contents(g)).Pages {
		if other, ok := replaced[planned[slot]]; ok && (other != id || !slices.Contains(first.Contents.Pages, id)) {
			t.Errorf("slot %d has page %d, replaced says %d", slot, id, other)
		}
		if _, err := x.Page(planned[slot]); errors.Is(err, ErrNotExist) != (id != planned[slot]) {
			t.Errorf("page %d: %v", planned[slot], err)
		}
	}
}

func TestRetire(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	short := publish(t, x, i, draft{tokens: repeated(600, 0)})
	long := publish(t, x, i, draft{tokens: repeated(1000, 0)})
	kept := must(x.Contents(long)).Pages[7] // the last attention page of rank 0
	page := must(x.Page(kept))

	done, err := x.Retire([]*Generation{long, long}, "for a test", 77, 5, func(id pages.ID) bool { return id == kept })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(done.Generations, []*Generation{long}) || !long.Retired() || i.Attr().Mtime != 77 {
		t.Errorf("retired %v, retired %v, mtime %d", done.Generations, long.Retired(), i.Attr().Mtime)
	}
	// 8 attention pages and a recurrent one a rank; 4 are shared, one is kept.
	if len(done.Dropped) != 2*5-1 || len(done.Changed) != 2*4+1 {
		t.Errorf("%d pages dropped, %d changed", len(done.Dropped), len(done.Changed))
	}
	if page.Links() != 0 || !slices.Contains(done.Changed, page) || must(x.Page(kept)) != page {
		t.Errorf("the kept page has %d links", page.Links())
	}
	if !x.Done(5) || x.Done(6) {
		t.Error("the request is not recorded")
	}
	if dropped, err := x.DropPages([]pages.ID{kept, must(x.Contents(short)).Pages[0]}); err != nil || !slices.Equal(dropped, []*Page{page}) {
		t.Errorf("dropped %v, %v", dropped, err)
	}
	if _, err := x.Page(kept); !errors.Is(err, ErrNotExist) {
		t.Errorf("the dropped page: %v", err)
	}
	if _, err := x.Contents(long); !errors.Is(err, ErrNotExist) {
		t.Errorf("contents of what was retired: %v", err)
	}
	again, err := x.Retire([]*Generation{long}, "again", 78, 0, nil)
	if err != nil || len(again.Generations) != 0 {
		t.Errorf("retired again: %v, %v", again, err)
	}
	res := x.Find(i, &FindRequest{NumTokens: 1000, Tokens: repeated(1000, 0)}, nil)
	if res.Generation != short {
		t.Errorf("found %v, %s", res.Generation, res.Reason)
	}
}

func TestPageIsOnePointer(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(300, 0)})
	ids := must(x.Contents(g)).Pages
	x.pages = newPageCache(1) // nothing is kept
	held := must(x.Page(ids[0]))
	for _, id := range ids {
		must(x.Page(id))
	}
	if again := must(x.Page(ids[0])); again != held {
		t.Error("a second pointer to a page that is held")
	}
	if err := x.SetPageAttr(held, func(Attr) Attr { return Attr{Mode: 0o444, UID: 42, Mtime: 43} }); err != nil {
		t.Fatal(err)
	}
	publish(t, x, i, draft{tokens: repeated(400, 0)})
	if held.Attr().UID != 42 || held.Links() != 2 {
		t.Errorf("uid %d, %d links", held.Attr().UID, held.Links())
	}
}

func TestKeysThatBeginAlike(t *testing.T) {
	dir := t.TempDir()
	x := openStore(t, filepath.Join(dir, "index.db"))
	i := newIdentity(t, x, "")
	p := must(publication(x, i, draft{tokens: repeated(300, 0)}))
	for n := range p.NewPages {
		k := &p.NewPages[n].Key
		*k = pages.Key{8: byte(n + 1)} // the first 8 bytes of all are the same
	}
	if _, _, err := x.Publish(p); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for n := range p.NewPages {
			got, ok, err := x.PageByKey(p.NewPages[n].Key)
			if err != nil || !ok || got.ID != p.NewPages[n].ID {
				t.Errorf("key %d finds %v, %v", n, got, err)
			}
		}
		if _, ok, err := x.PageByKey(pages.Key{8: 200}); ok || err != nil {
			t.Errorf("a key that is not there: %v, %v", ok, err)
		}
		mustClose(t, x)
		x = openStore(t, filepath.Join(dir, "index.db"))
	}
	g := x.GenerationByID(p.ID)
	if _, err := x.Retire([]*Generation{g}, "done", 1, 0, nil); err != nil {
		t.Fatal(err)
	}
	if len(x.keys.ids)+len(x.keys.clash) != 0 {
		t.Error("keys are left")
	}
}

func TestSubAttrs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := openStore(t, path)
	g := publish(t, x, newIdentity(t, x, ""), draft{tokens: repeated(30, 0)})
	set := Attr{Mode: 0o711, UID: 1, GID: 2, Mtime: 12345}
	if err := x.SetSubAttr(g, 5, func(Attr) Attr { return set }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for sub, want := range map[uint64]Attr{1: {Mode: 0o750, UID: 7, Mtime: 1 << 60}, 5: set, 9: {Mode: 0o700, Mtime: -5}} {
			if got, ok := x.SubAttr(g, sub); !ok || got != want {
				t.Errorf("attributes of %d: %v %v, want %v", sub, got, ok, want)
			}
		}
		if _, ok := x.SubAttr(g, 2); ok {
			t.Error("attributes that were never set")
		}
		mustClose(t, x)
		x = openStore(t, path)
		g = x.GenerationByID(g.ID)
	}
}

func TestDirectories(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	m := i.Model
	if _, err := x.CreateModel(m.Name, Attr{}, 0); !errors.Is(err, ErrExist) {
		t.Error(err)
	}
	if _, err := x.CreateIdentity(m, i.Name, nil, Attr{}, 0); !errors.Is(err, ErrExist) {
		t.Error(err)
	}
	if err := x.RemoveModel(m, 0); !errors.Is(err, ErrNotEmpty) {
		t.Error(err)
	}
	g := publish(t, x, i, draft{tokens: repeated(3, 0)})
	if err := x.RemoveDocument(i, 0); !errors.Is(err, ErrDocumentNeeded) {
		t.Error(err)
	}
	if err := x.RemoveIdentity(i, 0); !errors.Is(err, ErrNotEmpty) {
		t.Error(err)
	}
	if _, err := x.Retire([]*Generation{g}, "done", 1, 0, nil); err != nil {
		t.Error(err)
	}
	if err := errors.Join(x.RemoveDocument(i, 0), x.RemoveIdentity(i, 1), x.RemoveModel(m, 2)); err != nil {
		t.Error(err)
	}
	if err := x.RemoveIdentity(i, 0); !errors.Is(err, ErrNotExist) {
		t.Error(err)
	}
	if _, err := x.CreateIdentity(m, "x", nil, Attr{}, 0); !errors.Is(err, ErrNotExist) {
		t.Error(err)
	}
	if x.Model(m.Name) != nil || x.ModelByID(m.ID) != nil || x.IdentityByID(i.ID) != nil || !x.Done(1) || !x.Done(2) {
		t.Error("something is left")
	}
}

// copyStore copies a database as a crash leaves it: with its log.
func copyStore(t testing.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "index.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestIDsAreNeverUsedTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := openStore(t, path)
	var last ObjectID
	for range 3 {
		id := x.NextID()
		if id <= last {
			t.Fatalf("id %d after %d", id, last)
		}
		path = copyStore(t, path) // killed
		x = openStore(t, path)
		last = id
	}
	before := x.Transactions()
	x.ids.next.Store(x.ids.end.Load() - 2)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[ObjectID]bool)
	for range 8 {
		wg.Go(func() {
			for range 100 {
				id := x.NextID()
				mu.Lock()
				if id == 0 || seen[id] {
					t.Errorf("id %d", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := x.Transactions() - before; n != 1 {
		t.Errorf("%d transactions for one block", n)
	}
	end := x.NextID()
	mustClose(t, x)
	x = openStore(t, path)
	if id := x.NextID(); id != end+1 {
		t.Errorf("after a clean close, id %d follows %d", id, end)
	}
	mustClose(t, x)
	if id := x.NextID(); id != 0 {
		t.Errorf("id %d of a closed index", id)
	}
}

func TestOpsSurviveACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := openStore(t, path)
	i := newIdentity(t, x, "")
	for op := Op(1); op <= maxOps+10; op++ {
		if err := x.update("a test", op|1<<62, func(*conn) error { return nil }, nil); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("no")
	if err := x.update("a test", 3, func(*conn) error { return failed }, nil); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	for range 2 {
		for op, want := range map[Op]bool{10 | 1<<62: false, 11 | 1<<62: true, (maxOps + 10) | 1<<62: true, 3: false, 0: false} {
			if x.Done(op) != want {
				t.Errorf("Done(%#x) is %v", op, !want)
			}
		}
		x = openStore(t, copyStore(t, path))
	}
	if err := x.ForgetOps(); err != nil || x.Done(11|1<<62) {
		t.Error("not forgotten", err)
	}
	if x.IdentityByID(i.ID) == nil {
		t.Error("the identity is gone")
	}
}
