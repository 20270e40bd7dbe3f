package index

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestStatementsPerPublication: rows of new pages are inserted 16 at a time, and
// nothing else depends on their number.
func TestStatementsPerPublication(t *testing.T) {
	x := must(Open(filepath.Join(t.TempDir(), "index.db"), Options{}))
	defer x.Close()
	i := newIdentity(t, x, "")
	statements := func(tokens []byte, newPages int) int {
		p := benchPublication(t, x, i, tokens)
		if len(p.NewPages) != newPages || len(p.Contents.Pages) != 224 {
			t.Fatalf("%d new pages of %d, want %d of 224", len(p.NewPages), len(p.Contents.Pages), newPages)
		}
		before := x.writer.mu.conn.ran
		if _, _, err := x.Publish(p); err != nil {
			t.Fatal(err)
		}
		return x.writer.mu.conn.ran - before
	}
	tokens := repeated(41*1024, 1)
	all := statements(tokens, 224)
	// The last page of attention and what follows it are other ones: 4 ranks with 1 + 15 + 1.
	few := statements(append(tokens[:40*1024*tokenBytes:40*1024*tokenBytes], repeated(1024, 2)...), 4*16)
	const others = 9 // the transaction's two, keys, generation, contents, identity, history
	if want := others + 224/insertedAtOnce; all != want {
		t.Errorf("%d statements for 224 new pages, want %d", all, want)
	}
	if want := others + 64/insertedAtOnce + 1; few != want { // one for the links of the others
		t.Errorf("%d statements for 64 new pages of 224, want %d", few, want)
	}
}

// TestNothingIsPublishedWithoutADocument: a staging may outlive the document that
// it was made under.
func TestNothingIsPublishedWithoutADocument(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	doc := i.Document()
	p := must(publication(x, i, draft{tokens: repeated(600, 0)}))
	if err := x.RemoveDocument(i, 0); err != nil {
		t.Fatal(err)
	}
	before := snapshotOf(t, x, i)
	if _, _, err := x.Publish(p); !errors.Is(err, ErrNoDocument) {
		t.Errorf("publishing: %v", err)
	}
	before.check(t, x, i)
	if err := x.SetDocument(i, doc, 0); err != nil {
		t.Fatal(err)
	}
	g, _, err := x.Publish(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.RemoveDocument(i, 0); !errors.Is(err, ErrDocumentNeeded) {
		t.Errorf("removing the document of %s: %v", g.Name, err)
	}
}
