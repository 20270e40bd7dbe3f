package evict

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// store is a real store without a mount: an index, a RAM tier, a disk tier, all
// on a tmpfs where that can be mounted. It can be killed and opened again.
type store struct {
	t     *testing.T
	dir   string
	l1    int64
	l2    int64
	steps *failSteps
	write WritePolicy
	idle  bool // open does not adopt

	idx  *index.Index
	ram  *pages.RAM
	disk *pages.Disk
	*Tiers
	ident *index.Identity
}

const storeDocument = `{"schema_version":1,"target_revision":"0123456789abcdef0123456789abcdef01234567","draft_revision":"",
	"source_revision":"89abcdef0123456789abcdef0123456789abcdef","layout":{"x":1},"parallel":{"world_size":1}}`

// failSteps fails disk step number at, from 1, and with forever all after it.
type failSteps struct {
	mu      sync.Mutex
	at, n   int
	err     error
	forever bool
	failed  string

	hold func(pages.Step) // called before each step, if there is one
}

func (f *failSteps) arm(at int, err error, forever bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.n, f.err, f.forever, f.failed = at, 0, err, forever, ""
}

// disarm ends it. It returns how many steps there were and what was failed.
func (f *failSteps) disarm() (steps int, failed string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = nil
	return f.n, f.failed
}

func (f *failSteps) Before(s pages.Step, path string) error {
	if f.hold != nil {
		f.hold(s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return nil
	}
	f.n++
	if f.n == f.at || f.forever && f.n > f.at {
		if f.failed == "" {
			f.failed = fmt.Sprintf("%s %s", s, filepath.Base(path))
		}
		return f.err
	}
	return nil
}

func newStore(t *testing.T, l1 int64) *store {
	t.Helper()
	s := &store{t: t, dir: t.TempDir(), l1: l1, steps: &failSteps{}, write: WriteOnEvict}
	if os.Geteuid() == 0 && pages.MountRAM(s.dir, 4*l1+256<<20, false) == nil { // index and disk too: syncing costs nothing
		t.Cleanup(func() { s.must(pages.UnmountRAM(s.dir, true)) })
	}
	s.must(os.Mkdir(filepath.Join(s.dir, "ram"), 0o700))
	t.Cleanup(func() {
		if s.idx != nil {
			s.kill()
		}
	})
	s.open()
	doc, err := index.ParseDocument([]byte(storeDocument))
	s.must(err)
	m, err := s.idx.CreateModel("mo\xffdel", index.Attr{Mode: 0o755, Mtime: 5}, 0)
	s.must(err)
	s.ident, err = s.idx.CreateIdentity(m, doc.Name(), doc, index.Attr{Mode: 0o750, UID: 7, GID: 8, Mtime: 9}, 0)
	s.must(err)
	return s
}

func (s *store) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// open opens everything as a new daemon does, the look beside the service included.
func (s *store) open() {
	s.t.Helper()
	var err error
	s.idx, err = index.Open(filepath.Join(s.dir, "index.db"), index.Options{})
	s.must(err)
	s.ram, err = pages.OpenRAM(filepath.Join(s.dir, "ram"))
	s.must(err)
	id, _, err := s.idx.Tier()
	s.must(err)
	s.disk, err = pages.OpenDisk(pages.DiskConfig{Dir: filepath.Join(s.dir, "disk"), SizeBytes: s.l2, TierID: id, Steps: s.steps})
	s.must(err)
	s.must(CountStart(context.Background(), s.idx, s.disk))
	budget := NewBudget(s.l1)
	s.Tiers = New(Config{
		Index: s.idx, RAM: s.ram, Disk: s.disk, Live: NewLive(s.ram, budget), Budget: budget,
		Policy: retention.NewRecency(time.Minute), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		High: 0.8, Low: 0.5, Grace: time.Minute, WritePolicy: s.write, Writers: 2, Loaders: 1, LoadWait: 50 * time.Millisecond,
		Retire: s.retire,
		Leases: func() []index.ObjectID { return nil },
		Spare:  func(index.ObjectID) bool { return true }, Spared: func(index.ObjectID) {},
	})
	if s.ident != nil {
		s.ident = s.idx.IdentityByID(s.ident.ID)
	}
	if !s.idle {
		s.adopt()
	}
}

// adopt makes tiers and index agree, as the filesystem does at its start.
func (s *store) adopt() {
	s.t.Helper()
	s.must(s.ram.ClearLoads())
	_, err := s.disk.Recount(context.Background())
	s.must(err)
	done, err := s.AdoptRAM(time.Hour, func(pages.ID) bool { return false })
	s.must(err)
	if !done {
		s.t.Fatal("not all of RAM was taken up")
	}
	lost, err := s.LostInRAM(false)
	s.must(err)
	unlinked, err := s.idx.UnlinkedPages()
	s.must(err)
	dropped, err := s.idx.DropPages(unlinked)
	s.must(err)
	for _, p := range dropped {
		s.Live.Dead(p)
	}
	absent, _, err := s.Confirm(lost)
	s.must(err)
	for _, p := range absent {
		gs, err := s.Index.Linking(p.ID)
		s.must(err)
		s.must(s.retire(gs, ReasonLost))
	}
	s.Learn(context.Background())
}

// kill ends everything without a word, as SIGKILL does.
func (s *store) kill() {
	s.Stop()
	s.idx.Close()
	s.ram.Close()
	s.idx = nil
}

// retire is what the stagings' Retire does.
func (s *store) retire(gs []*index.Generation, reason index.Reason) error {
	done := s.Retiring(gs)
	r, err := s.idx.Retire(gs, reason, time.Now().UnixNano(), 0, s.Live.Keep)
	done()
	if err != nil {
		return err
	}
	for _, p := range r.Dropped {
		s.Live.Dead(p)
	}
	for _, g := range gs {
		s.Retired(g.ID)
	}
	return nil
}

const storePage = 4096

// publish publishes the first n tokens of conversation c: attention pages of 4
// tokens and a recurrent page.
func (s *store) publish(c, n int) *index.Generation {
	s.t.Helper()
	return s.publishAs(index.KindPrompt, c, n)
}

// publishAs is publish with a kind, of which the pages know nothing.
func (s *store) publishAs(kind index.Kind, c, n int) *index.Generation {
	s.t.Helper()
	positions := ""
	for p := range (n + 3) / 4 {
		positions += fmt.Sprintf(",%d", p)
	}
	raw := fmt.Sprintf(`{"schema_version":2,"kind":%q,"request":"r%d","num_tokens":%d,"draft_prefix_len":0,"page_groups":[
		{"name":"att","role":"attention","page_tokens":4,"page_bytes":%d,"positions":[%s]},
		{"name":"rec","role":"recurrent","page_bytes":%d,"positions":[0]}]}`, kind, c, n, storePage, positions[1:], storePage)
	m, err := index.ParseManifest([]byte(raw))
	s.must(err)
	tokens := make([]byte, 0, 4*n)
	for i := range n {
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(c*1000+i))
	}
	doc := s.ident.Document()
	d, err := m.Derive(doc.Digest, doc.WorldSize, tokens)
	s.must(err)
	manifest, err := m.PublishedJSON(doc.Digest, doc.WorldSize, d)
	s.must(err)
	d.InModel(s.ident.Model.Name)
	p := &index.Publication{
		ID: s.idx.NextID(), Identity: s.ident, Manifest: m, Derived: d, Published: time.Now().UnixNano(),
		Contents: &index.Contents{Manifest: manifest, Layout: m.Layout(doc.WorldSize), Pages: make([]pages.ID, len(d.Keys))},
		Attr:     index.Attr{Mode: 0o755, UID: 3, Mtime: 11}, SubAttrs: []index.SubAttr{{Sub: 1, Attr: index.Attr{Mode: 0o700, Mtime: 12}}},
	}
	for slot, key := range d.Keys {
		row, there, err := s.idx.PageByKey(key)
		s.must(err)
		if there {
			p.Contents.Pages[slot] = row.ID
			continue
		}
		p.Contents.Pages[slot] = s.newPage(p, key, slot)
	}
	brought := Brought{Removals: s.Removals()}
	for _, made := range p.NewPages {
		brought.Pages = append(brought.Pages, made.ID)
	}
	g, _, err := s.idx.Publish(p)
	s.must(err)
	c2, err := s.idx.Contents(g)
	s.must(err)
	s.Published(g, c2, p.Kin, brought)
	return g
}

func (s *store) newPage(p *index.Publication, key pages.Key, slot int) pages.ID {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s.must(s.Budget.Reserve(ctx, Charge(storePage), func(n int64) { s.MakeRoom(ctx, n) }))
	id := pages.ID(s.idx.NextID())
	f, err := s.ram.Create(id, storePage)
	s.must(err)
	_, err = f.Write(pageOf(key))
	s.must(errors.Join(err, f.Close()))
	s.Budget.Fill(Charge(storePage))
	p.NewPages = append(p.NewPages, index.NewPage{ID: id, Key: key, Bytes: storePage, Attr: index.Attr{Mode: 0o444, UID: uint32(slot), Mtime: int64(100 + slot)}})
	return id
}

// pageOf makes the bytes that a page of this key has.
func pageOf(key pages.Key) []byte {
	b := make([]byte, 0, storePage)
	x := binary.LittleEndian.Uint64(key[:])
	for len(b) < storePage {
		x = x*6364136223846793005 + 1442695040888963407
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// read brings a page to where it can be read and compares every byte.
func (s *store) read(p *index.Page) error {
	if !s.Live.Open(p.ID, p.Bytes) {
		return fmt.Errorf("page %d is going", p.ID)
	}
	defer s.Live.Close(p.ID)
	inRAM, err := s.Bring(context.Background(), p)
	if err != nil {
		return err
	}
	got := make([]byte, p.Bytes)
	if inRAM {
		f, err := s.ram.Open(p.ID)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.ReadAt(got, 0)
		if err != nil && err != io.EOF {
			return err
		}
	} else {
		o, err := s.disk.OpenObject(p.Key)
		if err != nil {
			return err
		}
		defer o.Close()
		if _, err := o.ReadAt(got, 0); err != nil && err != io.EOF {
			return err
		}
	}
	if !slices.Equal(got, pageOf(p.Key)) {
		return fmt.Errorf("page %d has wrong bytes", p.ID)
	}
	return nil
}

// readAll reads every page of every generation.
func (s *store) readAll() (gens int, err error) {
	err = s.idx.EachGeneration(func(g *index.Generation) error {
		ids, err := s.idx.PageIDs(g)
		if err != nil {
			return err
		}
		rows, err := s.idx.Pages(ids)
		if err != nil {
			return err
		}
		for _, p := range rows {
			if err := s.read(p); err != nil {
				return fmt.Errorf("%s: %w", g.Name, err)
			}
		}
		gens++
		return nil
	})
	return gens, err
}

// check fails the test for every contradiction, leftovers included.
func (s *store) check() {
	s.t.Helper()
	findings, err := s.Check(context.Background(), nil)
	s.must(err)
	for _, f := range findings {
		s.t.Error(f)
	}
}
