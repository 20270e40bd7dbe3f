package client

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPagePath(t *testing.T) {
	for _, c := range []struct {
		position int
		want     string
	}{{0, "rank-3/g.0/00000000"}, {39, "rank-3/g.0/00000039"}, {1234567890, "rank-3/g.0/1234567890"}} {
		if got := PagePath(3, "g.0", c.position); got != c.want || RankOf(got) != 3 {
			t.Errorf("PagePath = %q of rank %d, want %q", got, RankOf(got), c.want)
		}
	}
	for _, path := range []string{"manifest.json", "rank-", "rank--1/g/00000000", "rank-x", ""} {
		if rank := RankOf(path); rank != -1 {
			t.Errorf("RankOf(%q) = %d", path, rank)
		}
	}
}

func TestTokens(t *testing.T) {
	tokens := []uint32{0, 1, 1<<31 - 1}
	got, err := DecodeTokens(EncodeTokens(tokens))
	if err != nil || !slices.Equal(got, tokens) {
		t.Errorf("DecodeTokens = %v, %v", got, err)
	}
	if _, err := DecodeTokens(make([]byte, 5)); err == nil {
		t.Error("5 bytes are taken for tokens")
	}
}

func TestManifestPages(t *testing.T) {
	m, err := ParseManifest([]byte(`{"page_groups":[{"name":"a","page_bytes":8,"positions":[0,2]},{"name":"b","page_bytes":4,"positions":[7]}],"engine":"kept by the filesystem"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Page{{"rank-1/a/00000000", 8}, {"rank-1/a/00000002", 8}, {"rank-1/b/00000007", 4}}
	if got := slices.Collect(m.Pages(1)); !slices.Equal(got, want) {
		t.Errorf("Pages = %v, want %v", got, want)
	}
	plan := Plan{Missing: []Page{want[0], {"rank-10/a/00000000", 8}}}
	if got := plan.MissingOf(1); !slices.Equal(got, want[:1]) {
		t.Errorf("MissingOf = %v", got)
	}
}

func TestRetry(t *testing.T) {
	interrupts := 3
	err := retry(func() error {
		if interrupts--; interrupts >= 0 {
			return unix.EINTR
		}
		return unix.EEXIST
	})
	if err != unix.EEXIST || interrupts != -1 {
		t.Errorf("retry = %v with %d interrupts left", err, interrupts)
	}
}
