package index

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"unique"
)

// State says what retention may do with a generation.
type State int32

const (
	Current    State = iota // kept, and written to disk before RAM drops it
	Superseded              // a later generation has taken its place
	Fork                    // current, and the point where conversations branch off
	PassedFork              // a superseded fork point
)

// Superseded reports whether a later generation has taken its place.
func (s State) Superseded() bool { return s == Superseded || s == PassedFork }

// Fork reports whether conversations branch off at it.
func (s State) Fork() bool { return s == Fork || s == PassedFork }

// superseded and current are the states after the one and the other; what a
// fork point was is not forgotten.
func (s State) superseded() State { return s | Superseded }
func (s State) current() State    { return s &^ Superseded }

func (s State) String() string {
	switch s {
	case Current:
		return "current"
	case Superseded:
		return "superseded"
	case Fork:
		return "fork"
	case PassedFork:
		return "superseded fork"
	}
	return "unknown"
}

// Generation is a published generation. The exported fields don't change.
//
// In memory it takes about 0.9 KiB, what Find needs of it included, whatever
// its pages are.
type Generation struct {
	ID             ObjectID
	Identity       *Identity
	Name           string
	Request        string
	Kind           Kind
	NumTokens      int
	DraftPrefixLen uint32
	Digest         Digest // of the generation
	Prefix         Prefix
	TailHash       uint64
	HasTail        bool  // false: restored without tokens, TailHash is not known
	Published      int64 // when, nanoseconds since 1970
	PageCount      int   // over all ranks
	PageBytes      int64 // of all its pages, shared ones included
	ManifestBytes  int64 // of the published manifest
	// Parent is the longest generation that was published before as a proper
	// prefix of this one, of any request; 0 if there was none or it is not known.
	Parent ObjectID
	attrCell
	settings

	seq          int64 // the order of publication
	request      unique.Handle[string]
	state        atomic.Int32
	supersededBy atomic.Uint64
	used         atomic.Int64
	retired      atomic.Bool
	blob         atomic.Bool
	blobVersion  atomic.Uint32
}

func (g *Generation) objectID() ObjectID { return g.ID }
func (g *Generation) objectName() string { return g.Name }
func (g *Generation) sequence() int64    { return g.seq }

// Order is its place in the order of publication, from 1.
func (g *Generation) Order() int64 { return g.seq + 1 }

func (g *Generation) ending() ending { return ending{g.NumTokens, g.Prefix, g.TailHash, g.HasTail} }

// State returns what it was last set to; Current at publication.
func (g *Generation) State() State { return State(g.state.Load()) }

// SupersededBy returns the generation that took its place, 0 if none did.
func (g *Generation) SupersededBy() ObjectID { return ObjectID(g.supersededBy.Load()) }

// Used returns its recency: that of the last lookup that returned it, or of its
// publication; see Touch.
func (g *Generation) Used() int64 { return g.used.Load() }

// Retired reports whether it is not published any more. It takes no lock.
func (g *Generation) Retired() bool { return g.retired.Load() }

// HasBlob reports whether a blob of the disk tier says all that Blob would. It
// takes no lock.
func (g *Generation) HasBlob() bool { return g.blob.Load() }

// BlobVersion counts the changes since Open that made its blob stale.
func (g *Generation) BlobVersion() uint32 { return g.blobVersion.Load() }

// setRequest shares the string with other generations of the same request.
func (g *Generation) setRequest(s string) {
	g.request = unique.Make(s)
	g.Request = g.request.Value()
}

// Generation returns the published generation of a name, nil if there is none.
func (i *Identity) Generation(name string) *Generation {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.mu.generations.get(name)
}

// Generations returns at most max published generations with ids greater than
// after, ascending.
func (i *Identity) Generations(after ObjectID, max int) []*Generation {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.mu.generations.after(after, max)
}

// GenerationByID returns the published generation of an id, nil if there is
// none.
func (x *Index) GenerationByID(id ObjectID) *Generation {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.mu.generationByID[id]
}

// Count returns how many generations are published.
func (x *Index) Count() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.mu.generationByID)
}

// addGeneration makes a generation visible.
func (x *Index) addGeneration(g *Generation) {
	x.mu.Lock()
	x.mu.generationByID[g.ID] = g
	x.mu.Unlock()
	i := g.Identity
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.generations.add(g)
	i.mu.published.add(g)
	i.mu.requests.add(g)
}

// removeGeneration is the inverse. r, if not nil, is what Find tells of it
// from then on.
func (x *Index) removeGeneration(g *Generation, r *retirement) {
	x.linkers.retired()
	x.mu.Lock()
	delete(x.mu.generationByID, g.ID)
	x.mu.Unlock()
	i := g.Identity
	i.mu.Lock()
	defer i.mu.Unlock()
	g.retired.Store(true)
	i.mu.generations.remove(g)
	i.mu.published.remove(g)
	i.mu.requests.remove(g)
	if r != nil {
		i.mu.retired.add(r)
	}
}

const insertGeneration = `INSERT INTO generations VALUES
	(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// values returns the columns of its row, in the table's order.
func (g *Generation) values() []driver.Value {
	row := append([]driver.Value{
		int64(g.ID), g.seq, int64(g.Identity.ID), g.Digest[:], string(g.Kind), int64(g.NumTokens),
		int64(g.DraftPrefixLen), g.Request, g.Prefix.Root[:], g.Prefix.Digest[:], g.ending().tailValue(),
		g.Published, g.Used(), int64(g.State()), int64(g.SupersededBy()), int64(g.Parent),
		int64(g.PageCount), g.PageBytes, g.ManifestBytes,
	}, g.Attr().values()...)
	return append(row, flag(g.HasBlob()))
}

// loadGenerations reads all generations. Identities must be there. What is
// large, manifests and page lists, has a table of its own: this one must be
// read before anything can be served.
func (x *Index) loadGenerations(*conn) error {
	all, err := x.readGenerations()
	if err != nil {
		return err
	}
	perIdentity := make(map[*Identity]int)
	for _, g := range all {
		perIdentity[g.Identity]++
	}
	for i, n := range perIdentity {
		i.mu.generations.grow(n)
		i.mu.published.grow(n)
	}
	for _, g := range all {
		x.mu.generationByID[g.ID] = g
		g.Identity.mu.generations.add(g)
	}
	slices.SortFunc(all, func(a, b *Generation) int { return int(a.seq - b.seq) })
	for _, g := range all {
		x.recency.seen(g.Used())
		g.Identity.mu.published.add(g)
		g.Identity.mu.requests.add(g)
		x.nextSeq = g.seq + 1
	}
	return nil
}

// readGenerations reads the rows of all generations by two connections, as that
// is most of a start, and returns them by id.
func (x *Index) readGenerations() ([]*Generation, error) {
	var halves [2][]*Generation
	var errs [2]error
	var wg sync.WaitGroup
	for n := range halves {
		wg.Go(func() {
			errs[n] = x.readers.read(func(c *conn) error {
				return c.query("SELECT * FROM generations WHERE seq & 1 = ?", func(row []driver.Value) error {
					g, err := x.generationOf(row)
					if err == nil {
						halves[n] = append(halves[n], g)
					}
					return err
				}, int64(n))
			})
		})
	}
	wg.Wait()
	all := slices.Concat(halves[:]...)
	slices.SortFunc(all, func(a, b *Generation) int { return cmp.Compare(a.ID, b.ID) })
	return all, errors.Join(errs[:]...)
}

// generationOf makes a generation of a row.
func (x *Index) generationOf(row []driver.Value) (*Generation, error) {
	g := &Generation{
		ID:             ObjectID(row[0].(int64)),
		seq:            row[1].(int64),
		Identity:       x.mu.identityByID[ObjectID(row[2].(int64))],
		Kind:           knownKind(row[4].(string)),
		NumTokens:      int(row[5].(int64)),
		DraftPrefixLen: uint32(row[6].(int64)),
		Published:      row[11].(int64),
		Parent:         ObjectID(row[15].(int64)),
		PageCount:      int(row[16].(int64)),
		PageBytes:      row[17].(int64),
		ManifestBytes:  row[18].(int64),
	}
	if g.Identity == nil {
		return nil, corruptf("generation %d is in identity %d, which is not there", g.ID, row[2])
	}
	g.Prefix.StartTokens = startTokens(g.NumTokens)
	for _, d := range []struct {
		column int
		to     *Digest
	}{{3, &g.Digest}, {8, &g.Prefix.Root}, {9, &g.Prefix.Digest}} {
		b, _ := row[d.column].([]byte)
		if len(b) != len(d.to) {
			return nil, corruptf("generation %d has a digest of %d bytes", g.ID, len(b))
		}
		copy(d.to[:], b)
	}
	g.TailHash, g.HasTail = tailOf(row[10])
	g.Name = GenerationName(g.NumTokens, g.Kind, g.Digest)
	g.setRequest(row[7].(string))
	g.used.Store(row[12].(int64))
	g.state.Store(int32(row[13].(int64)))
	g.supersededBy.Store(uint64(row[14].(int64)))
	g.set(attrOf(row[19:]))
	g.blob.Store(row[len(row)-1].(int64) != 0)
	return g, nil
}

// knownKind shares the string of a kind that is known.
func knownKind(s string) Kind {
	for _, k := range []Kind{KindInstruction, KindPrompt, KindResponse} {
		if string(k) == s {
			return k
		}
	}
	return Kind(s)
}
