package fusefs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/evict"
	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// testDraft is an accepted staging of one rank with n pages to be written.
func testDraft(t testing.TB, fs *FS, name string, n int, firstToken uint32) *staging.Draft {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m := fs.idx.Model("m")
	if m == nil {
		var err error
		m, err = fs.idx.CreateModel("m", index.Attr{Mode: 0o755}, 0)
		must(err)
	}
	doc, err := index.ParseDocument(testIdentity(1))
	must(err)
	i := m.Identity(doc.Name())
	if i == nil {
		i, err = fs.idx.CreateIdentity(m, doc.Name(), doc, index.Attr{Mode: 0o755}, 0)
		must(err)
	}
	d, err := fs.stage.Create(i, name, index.Attr{Mode: 0o755}, 0)
	must(err)
	tokens := make([]byte, 4*n*testPageTokens)
	tokens[0], tokens[1], tokens[2] = byte(firstToken), byte(firstToken>>8), byte(firstToken>>16)
	for _, f := range []struct {
		t       staging.EntryType
		content []byte
	}{{staging.EntryTokens, tokens}, {staging.EntryManifest, testManifest(n, 4096)}} {
		file, err := d.CreateFile(f.t, index.Attr{Mode: 0o644}, uint64(f.t)+1, 0)
		must(err)
		_, err = file.Write(f.content)
		must(err)
		must(file.Close())
	}
	must(d.Accept(context.Background()))
	return d
}

// fillDraft writes all pages and returns their ids.
func fillDraft(t testing.TB, d *staging.Draft, n int) (ids []pages.ID) {
	t.Helper()
	group := staging.Place{Level: staging.LevelGroup}
	for p := range n {
		id, f, err := d.CreatePage(context.Background(), group, fmt.Sprintf("%08d", p), staging.Owner{Mode: 0o644}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		f.Close()
		ids = append(ids, id)
	}
	return ids
}

// planName is the name that the plan gives to the generation.
func planName(t testing.TB, d *staging.Draft) string {
	t.Helper()
	raw, err := d.PlanJSON()
	if err != nil {
		t.Fatal(err)
	}
	var plan staging.Plan
	if err := json.Unmarshal(raw, &plan); err != nil {
		t.Fatal(err)
	}
	return plan.Generation
}

// publishedPages is a store with one generation of n pages; the nodes are those
// of its pages and of their directory.
func publishedPages(t testing.TB, n int) (fs *FS, nodes []nodeID, group nodeID) {
	t.Helper()
	fs = quietFS(t)
	d := testDraft(t, fs, "s", n, 1)
	fillDraft(t, d, n)
	g, err := d.Publish(planName(t, d), 0, ignorePublished)
	if err != nil {
		t.Fatal(err)
	}
	c, err := fs.idx.Contents(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range c.Pages {
		nodes = append(nodes, pageNode(id))
	}
	return fs, nodes, placeNode(g.ID, staging.Place{Level: staging.LevelGroup})
}

// TestWorkPerPublication: one transaction, however many pages there are, and no
// look at the files of pages that were looked at when their writers closed them;
// a replay costs none.
func TestWorkPerPublication(t *testing.T) {
	fs := quietFS(t)
	fs.tiers.Learn(context.Background())
	const n = 224
	d := testDraft(t, fs, "first", n, 1)
	ids := fillDraft(t, d, n)
	for _, id := range ids {
		fs.stage.Settle(id)
	}
	owned := fuse.SetAttrIn{}
	owned.NodeId, owned.Valid, owned.Mtime = uint64(pageNode(ids[7])), fuse.FATTR_MTIME, 1234
	if s := fs.SetAttr(nil, &owned, &fuse.AttrOut{}); !s.Ok() {
		t.Fatal(s)
	}
	before, looks := fs.idx.Transactions(), fs.ram.Looks()
	removals := fs.tiers.Removals()
	g, err := d.Publish(planName(t, d), 0, ignorePublished)
	if err != nil {
		t.Fatal(err)
	}
	fs.published(g, d.Kin(), evict.Brought{Pages: d.Brought(), Removals: removals})
	if got := fs.idx.Transactions() - before; got != 1 {
		t.Errorf("publication of %d pages took %d transactions, want 1", n, got)
	}
	if got := fs.ram.Looks() - looks; got != 1 {
		t.Errorf("publication of %d pages took %d looks at their files, want 1, for the mtime that was set", n, got)
	}
	if p, err := fs.idx.Page(ids[7]); err != nil || p.Attr().Mtime != 1234e9 {
		t.Errorf("the page whose mtime was set has %+v, %v", p.Attr(), err)
	}
	if there := fs.tiers.Resident(); there != n {
		t.Errorf("%d pages are in RAM, want %d", there, n)
	}
	held, _ := fs.budget.Usage()
	before = fs.idx.Transactions()
	again := testDraft(t, fs, "again", n, 1)
	if _, err := again.Publish(g.Name, 0, ignorePublished); !errorIs(err, syscall.EEXIST) {
		t.Errorf("a replay: %v, want EEXIST", err)
	}
	if got := fs.idx.Transactions() - before; got != 0 {
		t.Errorf("a replay took %d transactions, want none", got)
	}
	if now, _ := fs.budget.Usage(); now != held {
		t.Errorf("a replay took %d bytes of RAM, want none", now-held)
	}
}

// BenchmarkLookupPage is a LOOKUP of a published page, without the kernel.
func BenchmarkLookupPage(b *testing.B) {
	fs, _, group := publishedPages(b, 64)
	var out fuse.EntryOut
	in := fuse.InHeader{NodeId: uint64(group)}
	b.ReportAllocs()
	for b.Loop() {
		if s := fs.Lookup(nil, &in, "00000042", &out); !s.Ok() {
			b.Fatal(s)
		}
	}
}

// BenchmarkOpenPage is OPEN and RELEASE of a published page, without the kernel
// and without passthrough.
func BenchmarkOpenPage(b *testing.B) {
	fs, nodes, _ := publishedPages(b, 64)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in := fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(nodes[i%len(nodes)])}, Flags: uint32(os.O_RDONLY)}
		var out fuse.OpenOut
		if s := fs.Open(nil, &in, &out); !s.Ok() {
			b.Fatal(s)
		}
		fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
	}
}

// BenchmarkPublish publishes generations of 224 new pages.
func BenchmarkPublish(b *testing.B) {
	fs := quietFS(b)
	const n = 224
	for i := uint32(1); b.Loop(); i++ {
		b.StopTimer()
		d := testDraft(b, fs, fmt.Sprint(i), n, i)
		fillDraft(b, d, n)
		name := planName(b, d)
		b.StartTimer()
		if _, err := d.Publish(name, 0, ignorePublished); err != nil {
			b.Fatal(err)
		}
	}
}

func ignorePublished(*index.Generation) {}
