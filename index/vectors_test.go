package index

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
)

// tokenSpec makes tokens by a formula: token i is (i*mul + add) mod mod.
type tokenSpec struct{ Count, Mul, Add, Mod uint64 }

func (s tokenSpec) tokens() []byte {
	var b []byte
	for i := range s.Count {
		b = binary.LittleEndian.AppendUint32(b, uint32((i*s.Mul+s.Add)%s.Mod))
	}
	return b
}

// vectors is testdata/vectors.json, which testdata/vectors.py prints.
type vectors struct {
	Documents []struct {
		Raw, Canonical, Digest, Name string
		WorldSize                    int `json:"world_size"`
	}
	Chains []struct {
		Identity, Root string
		LastRoot       string `json:"last_root"`
		Tokens         tokenSpec
		Media          []Media
		Digests        []struct {
			N int
			D string
		}
	}
	Generations []struct {
		Identity, Manifest, Name, Published string
		GenerationDigest                    string `json:"generation_digest"`
		TailHash                            string `json:"tail_hash"`
		WorldSize                           int    `json:"world_size"`
		Tokens                              tokenSpec
		Keys                                []string
	}
}

func readVectors(t *testing.T) *vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

func mustDigest(t *testing.T, s string) Digest {
	t.Helper()
	d, err := ParseDigest(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestVectorsAreWhatTheScriptPrints(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here to compute the vectors again")
	}
	got, err := exec.Command(python, "testdata/vectors.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("testdata/vectors.json is not what testdata/vectors.py prints")
	}
}

func TestVectorDocuments(t *testing.T) {
	for i, v := range readVectors(t).Documents {
		d, err := ParseDocument([]byte(v.Raw))
		if err != nil {
			t.Errorf("document %d: %v", i, err)
			continue
		}
		if string(d.Doc) != v.Canonical {
			t.Errorf("document %d:\n got %q\nwant %q", i, d.Doc, v.Canonical)
		}
		if d.Digest.Hex() != v.Digest || d.Name() != v.Name || d.WorldSize != v.WorldSize {
			t.Errorf("document %d: %s %s of %d ranks, want %s %s of %d", i, d.Digest, d.Name(), d.WorldSize, v.Digest, v.Name, v.WorldSize)
		}
	}
}

func TestVectorChains(t *testing.T) {
	for i, v := range readVectors(t).Chains {
		identity, tokens := mustDigest(t, v.Identity), v.Tokens.tokens()
		c, err := NewChain(identity, tokens, v.Media)
		if err != nil {
			t.Fatal(err)
		}
		roots := c.Roots()
		if Root(identity).Hex() != v.Root || roots[0].Hex() != v.Root || roots[len(roots)-1].Hex() != v.LastRoot {
			t.Errorf("chain %d: roots differ", i)
		}
		var ns []int
		for _, d := range v.Digests {
			ns = append(ns, d.N)
		}
		prefix, all, err := PrefixDigests(identity, tokens, v.Media, ns)
		if err != nil {
			t.Fatal(err)
		}
		if last := v.Digests[len(ns)-1]; prefix.Digest.Hex() != last.D || prefix != c.Prefix(last.N) {
			t.Errorf("chain %d: prefix of %d tokens differs", i, last.N)
		}
		for _, d := range v.Digests {
			if got, ok := all.At(d.N); !ok || got.Hex() != d.D {
				t.Errorf("chain %d: D(%d) in one pass is %s, want %s", i, d.N, got, d.D)
			}
			if got := c.Digest(d.N); got.Hex() != d.D {
				t.Errorf("chain %d: D(%d) is %s, want %s", i, d.N, got, d.D)
			}
		}
	}
}

func TestVectorGenerations(t *testing.T) {
	for i, v := range readVectors(t).Generations {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			identity := mustDigest(t, v.Identity)
			m, err := ParseManifest([]byte(v.Manifest))
			if err != nil {
				t.Fatal(err)
			}
			d, err := m.Derive(identity, v.WorldSize, v.Tokens.tokens())
			if err != nil {
				t.Fatal(err)
			}
			tail, _ := strconv.ParseUint(v.TailHash, 16, 64)
			if !d.HasTail || d.TailHash != tail {
				t.Errorf("tail hash %016x, want %s", d.TailHash, v.TailHash)
			}
			published, err := m.PublishedJSON(identity, v.WorldSize, d)
			if err != nil {
				t.Fatal(err)
			}
			if string(published) != v.Published {
				t.Errorf("published\n got %s\nwant %s", published, v.Published)
			}
			restored, err := ParseManifest([]byte(v.Published))
			if err != nil {
				t.Fatal(err)
			}
			again, err := restored.DeriveRestored(identity, v.WorldSize)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []*Derived{d, again} {
				if d.GenerationDigest.Hex() != v.GenerationDigest || d.Name != v.Name {
					t.Errorf("generation %s %s, want %s %s", d.GenerationDigest, d.Name, v.GenerationDigest, v.Name)
				}
				var keys []string
				for _, k := range d.Keys {
					keys = append(keys, k.String())
				}
				if !slices.Equal(keys, v.Keys) {
					t.Errorf("keys\n got %s\nwant %s", keys, v.Keys)
				}
			}
			twice, err := restored.PublishedJSON(identity, v.WorldSize, again)
			if err != nil || string(twice) != v.Published {
				t.Errorf("published again (%v)\n got %s\nwant %s", err, twice, v.Published)
			}
			if _, err := restored.Derive(identity, v.WorldSize, v.Tokens.tokens()); err != nil {
				t.Errorf("a published manifest with its tokens: %v", err)
			}
			if l := m.Layout(v.WorldSize); l.Total() != len(d.Keys) {
				t.Errorf("the layout has %d pages, there are %d keys", l.Total(), len(d.Keys))
			}
		})
	}
}
