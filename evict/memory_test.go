package evict

import (
	"runtime"
	"testing"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// maxResidentMemory is what the README tells operators of a page in RAM, and half
// as much again.
const maxResidentMemory = 132 // bytes

// TestMemoryPerPage bounds what is kept for a page in RAM.
func TestMemoryPerPage(t *testing.T) {
	const n = 200_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	r := newResidency()
	r.now = func() time.Duration { return 0 }
	p := index.Page{Bytes: 4096}
	for id := range pages.ID(n) {
		p.ID = id
		r.add(&p, index.ObjectID(id/16), true)
	}
	each := (heap() - before) / n
	t.Logf("%d bytes a page", each)
	if each > maxResidentMemory {
		t.Errorf("at most %d are wanted", maxResidentMemory)
	}
	if r.count() != n {
		t.Errorf("%d pages are there, want %d", r.count(), n)
	}
}

// BenchmarkNotInRAM is what a lookup asks of the tiers for a hit of 224 pages, all
// of them in RAM.
func BenchmarkNotInRAM(b *testing.B) {
	t := &Tiers{res: newResidency()}
	t.res.now = func() time.Duration { return 0 }
	var ids []pages.ID
	p := index.Page{Bytes: 4096}
	for id := range pages.ID(1 << 18) {
		p.ID = id
		t.res.add(&p, index.ObjectID(id/16), true)
		if id%1024 == 0 && len(ids) < 224 {
			ids = append(ids, id)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if away := t.NotInRAM(ids); len(away) > 0 {
			b.Fatal(away)
		}
	}
}
