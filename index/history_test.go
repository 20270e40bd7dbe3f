package index

import (
	"fmt"
	"testing"
)

// TestHistoryIsBounded: the latest events of all are kept, and what waits to be
// written is bounded too.
func TestHistoryIsBounded(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(300, 1)})
	other := publish(t, x, i, draft{tokens: repeated(300, 2)})
	for n := range 3 {
		x.Note(g, int64(n), fmt.Sprint("note ", n))
	}
	for round := 0; round <= maxHistory; round += maxNotes {
		for n := range maxNotes + 10 {
			x.Note(other, int64(n), "again")
		}
		if n := len(x.notes.list); n != maxNotes {
			t.Fatalf("%d notes wait", n)
		}
		if err := x.FlushTouched(); err != nil {
			t.Fatal(err)
		}
		if events, err := x.History(i, g.Name, 10); round == 0 && (err != nil || len(events) != 3+1 || events[3].Text != "note 2") {
			t.Fatalf("its history is %v, %v", events, err)
		}
	}
	if events, err := x.History(i, g.Name, 10); err != nil || len(events) != 0 {
		t.Errorf("of what is long past there is %v, %v", events, err)
	}
	if events, err := x.History(i, other.Name, 5); err != nil || len(events) != 5 {
		t.Errorf("the latest are %v, %v", events, err)
	}
	n, err := func() (n int64, err error) {
		err = x.readers.read(func(c *conn) error {
			n, err = c.integer("SELECT count(*) FROM history")
			return err
		})
		return n, err
	}()
	if err != nil || n > maxHistory {
		t.Errorf("%d events are kept: %v", n, err)
	}
}

// TestStoryOfARetirement: what was noted before comes before it, and its name is
// found by what a lookup knows of it.
func TestStoryOfARetirement(t *testing.T) {
	x := newStore(t)
	i := newIdentity(t, x, "")
	g := publish(t, x, i, draft{tokens: repeated(300, 1)})
	x.Note(g, 5, "a page is lost")
	if _, err := x.Retire([]*Generation{g}, "for a test", 6, 0, nil); err != nil {
		t.Fatal(err)
	}
	events, err := x.History(i, g.Name, 10)
	if err != nil || len(events) != 3 || events[1].Text != "a page is lost" || events[2].Text != "retired: for a test" {
		t.Errorf("its history is %v, %v", events, err)
	}
	res := x.Find(i, &FindRequest{NumTokens: 310, Tokens: repeated(310, 1)}, nil)
	if res.Retired.NumTokens != 300 || res.Retired.At != 6 {
		t.Fatalf("found %+v", res)
	}
	if name, err := x.RetiredName(i, res.Retired); err != nil || name != g.Name {
		t.Errorf("its name is %q, %v", name, err)
	}
	res.Retired.At++
	if name, err := x.RetiredName(i, res.Retired); err != nil || name != "" {
		t.Errorf("the name of another one is %q, %v", name, err)
	}
}
