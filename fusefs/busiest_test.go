package fusefs

import (
	"fmt"
	"testing"
	"time"

	"ckptfs/index"
)

func TestBusiest(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBusiest(func() time.Time { return now })
	model := func(n int) *index.Model { return &index.Model{ID: index.ObjectID(n + 1), Name: fmt.Sprint("m", n)} }
	found := &index.Generation{PageBytes: 100}
	for range 5 {
		b.lookup(model(0), found)
	}
	b.lookup(model(0), nil)
	b.lookup(model(1), nil)
	first := b.list()
	if len(first) != 2 || first[0] != (ModelUse{Model: "m0", Lookups: 6, Hits: 5, FoundBytes: 500}) || first[1].Lookups != 1 {
		t.Fatalf("%+v", first)
	}
	// A model that was busy is not for ever.
	now = now.Add(10 * busyHalfLife)
	b.published(&index.Generation{Identity: &index.Identity{Model: model(1)}, PageBytes: 7})
	if l := b.list(); l[0] != (ModelUse{Model: "m1", Lookups: 1, Published: 1, PublishedBytes: 7}) {
		t.Errorf("%+v", l)
	}
	// Many models: memory is bounded, and who is busy stays.
	for n := range 1000 {
		b.lookup(model(1), nil)
		b.lookup(model(n+2), nil)
	}
	l := b.list()
	if len(l) != maxBusiest || l[0].Model != "m1" || l[0].Lookups != 1001 {
		t.Errorf("%d models, the first is %+v", len(l), l[0])
	}
}
