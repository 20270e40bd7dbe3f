package index

import (
	"path/filepath"
	"runtime"
	"testing"

	"ckptfs/pages"
)

// What the README tells operators, and half as much again.
const (
	maxGenerationMemory = 1500 // bytes
	maxKeyMemory        = 60
	maxPageMemory       = 260
)

// TestMemory bounds what the index keeps in memory for each generation and each
// page that nobody uses, and for each page that the cache keeps.
func TestMemory(t *testing.T) {
	const n = 1024
	path := filepath.Join(t.TempDir(), "index.db")
	x := must(Open(path, Options{}))
	fill(t, x, newIdentity(t, x, ""), n, nil)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	x = nil

	empty := heapBytes()
	x = must(Open(path, Options{}))
	opened := heapBytes() - empty
	keys := int64(len(x.keys.ids))
	keyBytes := func() int64 {
		before := heapBytes()
		copied := make(map[uint64]pages.ID, keys)
		for head, id := range x.keys.ids {
			copied[head] = id
		}
		defer runtime.KeepAlive(copied)
		return heapBytes() - before
	}() / keys
	generation := (opened - keys*keyBytes) / n

	var ids []pages.ID
	if err := x.EachPage(func(r PageRow) error { ids = append(ids, r.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	before := heapBytes()
	held := must(x.Pages(ids))
	page := (heapBytes() - before) / int64(len(held))
	t.Logf("%d bytes a generation, %d a page's key, %d a page in the cache", generation, keyBytes, page)
	if generation > maxGenerationMemory || keyBytes > maxKeyMemory || page > maxPageMemory {
		t.Errorf("at most %d, %d and %d are wanted", maxGenerationMemory, maxKeyMemory, maxPageMemory)
	}
	runtime.KeepAlive(held)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
