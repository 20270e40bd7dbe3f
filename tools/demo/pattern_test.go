package main

import (
	"bytes"
	"strings"
	"testing"
)

const testPageBytes = 5*blockBytes + 100 // with a part of a block at the end

func TestPagesDescribeThemselves(t *testing.T) {
	p := newPattern(testPageBytes)
	base := pageName{0, "target.attention.0", 1, 7, 8192}
	page := bytes.Clone(p.page(base))
	for _, other := range []pageName{
		{0, "target.attention.1", 1, 7, 8192}, {0, "target.attention.0", 2, 7, 8192}, {0, "target.attention.0", 1, 8, 8192}, {0, "target.attention.0", 1, 7, 8000},
		{1, "target.attention.0", 1, 7, 8192},
	} {
		if err := p.check(other, page); err == nil || !strings.Contains(err.Error(), "rank 1, position 7, block 0") {
			t.Errorf("%+v taken for %+v: %v", base, other, err)
		}
	}
	if err := newPattern(testPageBytes).check(base, page); err != nil {
		t.Errorf("another process makes another page: %v", err)
	}
}

func TestCheckSeesEveryByte(t *testing.T) {
	p := newPattern(testPageBytes)
	name := pageName{0, "g", 0, 0, 1}
	page := bytes.Clone(p.page(name))
	for at := range page {
		page[at] ^= 1
		if p.check(name, page) == nil {
			t.Fatalf("a wrong byte at %d is not seen", at)
		}
		page[at] ^= 1
	}
	if p.check(name, page[:len(page)-1]) == nil {
		t.Error("a short page is not seen")
	}
}

// A page is the same whatever was made before it, up to the part of a block at its end.
func TestPagesDoNotDependOnOthers(t *testing.T) {
	used := newPattern(testPageBytes)
	for i := range 4 * windows {
		used.page(pageName{1, "g", 0, i, 1})
	}
	for i := range 2 * windows {
		name := pageName{0, "g", 0, i, 1}
		if err := used.check(name, newPattern(testPageBytes).page(name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestManifestSharesHistory(t *testing.T) {
	if got := prompt.pageCount(); got != 42*worldSize {
		t.Errorf("the prompt has %d pages", got)
	}
	same := 0
	old := prompt.pageNames(0)
	for path, name := range response.pageNames(0) {
		if old[path] == name {
			same++
		}
	}
	if same != prompt.NumTokens/pageTokens {
		t.Errorf("%d pages are the same, want the %d full ones of the prompt", same, prompt.NumTokens/pageTokens)
	}
}

func BenchmarkPage(b *testing.B) {
	p := newPattern(6893568)
	b.SetBytes(6893568)
	for i := 0; b.Loop(); i++ {
		p.page(pageName{0, "target.attention.0", 0, i, 0})
	}
}
