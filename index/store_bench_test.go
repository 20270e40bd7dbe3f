package index

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"ckptfs/pages"
)

const (
	benchTokens = 200_000
	manyGens    = 65_536
	fewGens     = 1_000
)

// benchPublication plans a generation of 224 pages: 4 ranks, each with 40
// attention pages, 15 recurrent ones and an auxiliary one.
func benchPublication(b testing.TB, x *Index, i *Identity, tokens []byte) *Publication {
	b.Helper()
	n := len(tokens) / tokenBytes
	var positions, groups strings.Builder
	for p := range 40 {
		fmt.Fprintf(&positions, ",%d", p)
	}
	for g := range 15 {
		fmt.Fprintf(&groups, `,{"name":"target.recurrent.%d","role":"recurrent","page_bytes":4096,"positions":[39]}`, g)
	}
	m := must(ParseManifest(fmt.Appendf(nil, `{"schema_version":2,"kind":"prompt","request":"r","num_tokens":%d,"draft_prefix_len":0,"page_groups":[
		{"name":"target.attention.0","role":"attention","page_tokens":1024,"page_bytes":4096,"positions":[%s]},
		{"name":"auxiliary","role":"auxiliary","page_bytes":4096,"positions":[0]}%s]}`, n, positions.String()[1:], groups.String())))
	doc := i.Document()
	d := must(m.Derive(doc.Digest, 4, tokens))
	c := &Contents{Manifest: must(m.PublishedJSON(doc.Digest, 4, d)), Layout: m.Layout(4)}
	p := &Publication{ID: x.NextID(), Identity: i, Manifest: m, Derived: d, Contents: c, Published: 1}
	there := must(x.PagesByKey(d.Keys))
	for slot, k := range d.Keys {
		if there[slot] != nil {
			c.Pages = append(c.Pages, there[slot].ID)
			continue
		}
		id := pages.ID(x.NextID())
		c.Pages = append(c.Pages, id)
		p.NewPages = append(p.NewPages, NewPage{ID: id, Key: k, Bytes: 4096})
	}
	return p
}

// hashed returns a digest that looks like any other.
func hashed(n int, what string) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s %d", what, n))
}

// fill publishes n generations of one identity with 15 or 16 new pages each
// and 64 in all, without the work of Derive. ends, if not nil, says where some
// of them end; the others end anywhere.
func fill(b testing.TB, x *Index, i *Identity, n int, ends func(int) (ending, bool)) {
	b.Helper()
	p := benchPublication(b, x, i, repeated(40_239, 1))
	manifest := x.zstd.encode(p.Contents.Manifest)
	var recent []pages.ID
	for first := 0; first < n; first += 1024 {
		var gs []*Generation
		var rows []PageRow
		ids := make([]ObjectID, 1024*17)
		for n := range ids {
			ids[n] = x.NextID()
		}
		nextID := func() ObjectID { id := ids[0]; ids = ids[1:]; return id }
		err := x.update("filling", 0, func(tx *conn) error {
			for k := first; k < min(first+1024, n); k++ {
				p.ID = nextID()
				g := newGeneration(p)
				g.seq = x.nextSeq + int64(k-first)
				g.Digest = hashed(k, "generation")
				g.Prefix.Root, g.Prefix.Digest = hashed(k, "root"), hashed(k, "prefix")
				if e, ok := endAt(ends, k); ok {
					g.NumTokens, g.Prefix, g.TailHash = e.tokens, e.prefix, e.tail
				}
				g.Name = GenerationName(g.NumTokens, g.Kind, g.Digest)
				g.PageCount = 64
				for range 15 + k%4/3 {
					r := PageRow{ID: pages.ID(nextID()), Bytes: 4096, Links: 4} // about the number of lists it gets into
					r.Key = hashed(int(r.ID), "page")
					if err := insertPage(tx, &r); err != nil {
						return err
					}
					rows, recent = append(rows, r), append(recent, r.ID)
				}
				recent = recent[max(0, len(recent)-64):]
				gs = append(gs, g)
				if _, err := tx.exec(insertGeneration, g.values()...); err != nil {
					return err
				}
				if _, err := tx.exec("INSERT INTO contents VALUES (?, ?, ?, ?)", int64(g.ID), manifest, encodePageList(recent), []byte{}); err != nil {
					return err
				}
			}
			return storeKeys(tx, rows, nil)
		}, func() {
			x.nextSeq += int64(len(gs))
			x.keys.add(rows)
			for _, g := range gs {
				x.addGeneration(g)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func endAt(ends func(int) (ending, bool), k int) (ending, bool) {
	if ends == nil {
		return ending{}, false
	}
	return ends(k)
}

// BenchmarkStore measures on a store of few generations, and then on one of
// many with a million pages, which it builds once.
func BenchmarkStore(b *testing.B) {
	for _, n := range []int{fewGens, manyGens} {
		b.Run(fmt.Sprintf("generations=%d", n), func(b *testing.B) {
			if n > fewGens && testing.Short() {
				b.Skip("builds a large index")
			}
			path := filepath.Join(b.TempDir(), "index.db")
			x := must(Open(path, Options{}))
			i := newIdentity(b, x, "")
			chain := must(NewChain(i.Document().Digest, repeated(benchTokens, 5), nil))
			fill(b, x, i, n, func(k int) (ending, bool) { return benchEnding(chain, k) })
			b.Run("find", func(b *testing.B) { benchFind(b, x, i, chain) })
			b.Run("publish", func(b *testing.B) { benchPublish(b, x, i) })
			b.Run("plan", func(b *testing.B) { benchPlan(b, x, i) })
			b.Run("retire", func(b *testing.B) { benchRetire(b, x, i) })
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
			x, i = nil, nil
			b.Run("open", func(b *testing.B) { benchOpen(b, path) })
		})
	}
}

// benchEnding has a conversation end near its beginning, at 300 hash units of
// its middle, and near its end; a quarter of all others end in one of its hash
// units with other tokens.
func benchEnding(chain *Chain, k int) (ending, bool) {
	end := func(tokens int) ending {
		p := chain.Prefix(tokens)
		tail := chain.Tail(p.StartTokens / HashUnit)[:(tokens-p.StartTokens)*tokenBytes]
		return ending{tokens, p, TailHash(tail), true}
	}
	switch {
	case k < 300:
		return end(50_000 + HashUnit*k), true
	case k == 300:
		return end(benchTokens - 1000), true
	case k == 301:
		return end(100), true
	case k%4 == 0:
		e := end(min(benchTokens-1000, 1+k%7*33_000+k%200))
		e.prefix.Digest = hashed(k, "prefix")
		e.tail = binary.LittleEndian.Uint64(e.prefix.Digest[:])
		return e, true
	}
	return ending{}, false
}

func benchFind(b *testing.B, x *Index, i *Identity, chain *Chain) {
	tokens := chain.tokens
	for _, c := range []struct {
		name string
		req  FindRequest
		want int
	}{
		{"near the end", FindRequest{NumTokens: benchTokens, Tokens: tokens}, benchTokens - 1000},
		{"near the start", FindRequest{NumTokens: 40_000, Tokens: tokens[:40_000*tokenBytes]}, 100},
		{"miss", FindRequest{NumTokens: benchTokens, Tokens: repeated(benchTokens, 6)}, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			fastest(b, nil, func() {
				g := x.Find(i, &c.req, nil).Generation
				if c.want == 0 && g != nil || c.want > 0 && g.NumTokens != c.want {
					b.Fatal(g)
				}
			})
		})
	}
	b.Run("probe", func(b *testing.B) { // what is left of "near the start" without hashing the tokens
		fastest(b, nil, func() { i.longestPublished(chain, 40_000, 1<<62) })
	})
}

// fastest measures op, and reports its fastest run too, which others on the
// machine disturb less than the mean.
func fastest(b *testing.B, prepare, op func()) {
	least := time.Duration(math.MaxInt64)
	for b.Loop() {
		if prepare != nil {
			b.StopTimer()
			prepare()
			b.StartTimer()
		}
		start := time.Now()
		op()
		least = min(least, time.Since(start))
	}
	b.ReportMetric(float64(least), "min-ns/op")
}

// checkpoint does what the daemon does every few seconds.
func checkpoint(b *testing.B, x *Index) {
	if err := x.Checkpoint(); err != nil {
		b.Fatal(err)
	}
}

// benchPublish publishes generations of 224 pages: all of them new, or 64.
func benchPublish(b *testing.B, x *Index, i *Identity) {
	k := 0
	for _, shared := range []int{0, 40 * 1024} {
		b.Run(fmt.Sprintf("new pages=%d", 224-4*shared/1024), func(b *testing.B) {
			var p *Publication
			fastest(b, func() {
				k++
				tokens := append(repeated(shared, 7), repeated(41*1024-shared, uint32(1000*k))...)
				p = benchPublication(b, x, i, tokens)
				if k%64 == 0 {
					checkpoint(b, x)
				}
			}, func() {
				if _, _, err := x.Publish(p); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// benchPlan finds the pages of a plan of 224, none of which is there, or all,
// but not in memory.
func benchPlan(b *testing.B, x *Index, i *Identity) {
	p := benchPublication(b, x, i, repeated(41*1024, 3))
	for _, there := range []bool{false, true} {
		if there {
			if _, _, err := x.Publish(p); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("there=%v", there), func(b *testing.B) {
			fastest(b, func() { x.pages = newPageCache(1) }, func() { must(x.PagesByKey(p.Derived.Keys)) })
		})
	}
}

// benchRetire retires generations of 224 pages of their own.
func benchRetire(b *testing.B, x *Index, i *Identity) {
	k := 0
	var g *Generation
	fastest(b, func() {
		k++
		var err error
		if g, _, err = x.Publish(benchPublication(b, x, i, repeated(40_239, uint32(1000*k)))); err != nil {
			b.Fatal(err)
		}
	}, func() {
		if _, err := x.Retire([]*Generation{g}, "benchmark", 1, 0, nil); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkProbe looks for the longest prefix among many in memory, where it is
// near the end, and where there is none; the tokens are hashed already.
func BenchmarkProbe(b *testing.B) {
	chain := must(NewChain(Digest{}, repeated(benchTokens, 5), nil))
	var p prefixes[*Generation]
	for k := range manyGens {
		e, ok := benchEnding(chain, k)
		if !ok {
			e = ending{1000, Prefix{768, hashed(k, "root"), hashed(k, "prefix")}, uint64(k), true}
		}
		p.add(&Generation{NumTokens: e.tokens, Prefix: e.prefix, TailHash: e.tail, HasTail: e.hasTail, seq: int64(k)})
	}
	miss := must(NewChain(Digest{}, repeated(benchTokens, 6), nil))
	for name, c := range map[string]*Chain{"hit": chain, "miss": miss} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if g := p.longest(c, benchTokens, math.MaxInt64); (g == nil) != (name == "miss") {
					b.Fatal(g)
				}
			}
		})
	}
}

// BenchmarkContents encodes and decodes what is stored of a generation of 224
// pages.
func BenchmarkContents(b *testing.B) {
	x := must(Open(filepath.Join(b.TempDir(), "index.db"), Options{}))
	defer x.Close()
	p := benchPublication(b, x, newIdentity(b, x, ""), repeated(40_239, 1))
	doc := p.Identity.Document()
	manifest, list := x.zstd.encode(p.Contents.Manifest), encodePageList(p.Contents.Pages)
	for _, c := range []struct {
		name string
		op   func()
	}{
		{"published manifest", func() { must(p.Manifest.PublishedJSON(doc.Digest, doc.WorldSize, p.Derived)) }},
		{"compress", func() { x.zstd.encode(p.Contents.Manifest) }},
		{"decompress", func() { must(x.zstd.decode(manifest)) }},
		{"encode pages", func() { encodePageList(p.Contents.Pages) }},
		{"decode pages", func() { must(decodePageList(list)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.op()
			}
		})
	}
}

func benchOpen(b *testing.B, path string) {
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	debug.FreeOSMemory()
	heap, resident := heapBytes(), residentMiB()
	var x *Index
	fastest(b, func() {
		if x != nil {
			x.Close()
			x = nil
			debug.FreeOSMemory()
		}
	}, func() { x = must(Open(path, Options{})) })
	b.ReportMetric(residentMiB()-resident, "resident-MiB")
	b.ReportMetric(float64(heapBytes()-heap)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(len(x.keys.ids)), "pages")
	b.ReportMetric(float64(st.Size())/(1<<20), "file-MiB")
	x.Close()
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// residentMiB returns the resident size of the process.
func residentMiB() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.Fields(string(b))[1])
	return float64(n) * float64(os.Getpagesize()) / (1 << 20)
}
