package staging

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

const (
	world     = 2
	pageBytes = 4096
	document  = `{"schema_version":1,"target_revision":"0123456789abcdef0123456789abcdef01234567","draft_revision":"",
		"source_revision":"89abcdef0123456789abcdef0123456789abcdef","layout":{"x":1},"parallel":{"world_size":2}}`
)

// bench is a Manager over a real index and a directory as RAM tier, which can be
// killed and opened again.
type bench struct {
	t      *testing.T
	dir    string
	op     index.Op
	now    time.Time
	idx    *index.Index
	ram    *pages.RAM
	budget *evict.Budget
	*Manager
	ident *index.Identity
}

// noWriters: every page here is written through descriptors of its own.
type noWriters struct{}

func (noWriters) Writing(pages.ID) bool { return false }

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), now: time.Unix(1700000000, 0)}
	b.open(false)
	t.Cleanup(b.kill)
	doc, err := index.ParseDocument([]byte(document))
	b.must(err)
	m, err := b.idx.CreateModel("model", index.Attr{Mode: 0o755}, 0)
	b.must(err)
	b.ident, err = b.idx.CreateIdentity(m, doc.Name(), doc, index.Attr{Mode: 0o755}, 0)
	b.must(err)
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// open opens everything as a new daemon does.
func (b *bench) open(discard bool) {
	b.t.Helper()
	var err error
	b.idx, err = index.Open(filepath.Join(b.dir, "index.db"), index.Options{})
	b.must(err)
	b.must(os.MkdirAll(filepath.Join(b.dir, "ram"), 0o700))
	b.ram, err = pages.OpenRAM(filepath.Join(b.dir, "ram"))
	b.must(err)
	b.budget = evict.NewBudget(1 << 20)
	b.Manager, err = New(Config{
		Index: b.idx, RAM: b.ram, Budget: b.budget, Live: evict.NewLive(b.ram, b.budget), Writers: noWriters{},
		Log: slog.New(slog.DiscardHandler), MaxStaging: 4, Timeout: time.Minute, AdmissionTimeout: time.Millisecond,
		AskRoom: func(int64) {}, Changed: func([]pages.ID) {}, Retired: func(index.ObjectID) {},
		Retiring: func([]*index.Generation) func() { return func() {} },
		Evict:    func([]*index.Identity, func() bool) {},
		Save:     func(context.Context, []evict.Unpublished) error { return nil },
		Now:      func() time.Time { return b.now },
	}, discard)
	b.must(err)
	if b.ident != nil {
		b.ident = b.idx.IdentityByID(b.ident.ID)
	}
}

// kill ends everything without a word, as SIGKILL does.
func (b *bench) kill() {
	for _, d := range b.All() {
		d.journal.close()
	}
	b.idx.Close()
	b.ram.Close()
}

func (b *bench) reopen() {
	b.t.Helper()
	b.kill()
	b.open(false)
}

func (b *bench) nextOp() index.Op { b.op++; return b.op }

// manifest describes a prefix of n tokens: attention pages of 4 tokens and one
// recurrent page.
func manifest(n int, request string) string {
	positions := ""
	for p := range (n + 3) / 4 {
		positions += fmt.Sprintf(",%d", p)
	}
	return fmt.Sprintf(`{"schema_version":2,"kind":"prompt","request":%q,"num_tokens":%d,"draft_prefix_len":0,"page_groups":[
		{"name":"att","role":"attention","page_tokens":4,"page_bytes":%d,"positions":[%s]},
		{"name":"rec","role":"recurrent","page_bytes":%d,"positions":[0]}]}`, request, n, pageBytes, positions[1:], pageBytes)
}

// tokens counts up from first.
func tokens(first, n int) []byte {
	var buf bytes.Buffer
	for i := range n {
		_ = binary.Write(&buf, binary.LittleEndian, uint32(first+i))
	}
	return buf.Bytes()
}

func (b *bench) write(d *Draft, t EntryType, content []byte) {
	b.t.Helper()
	f, err := d.CreateFile(t, index.Attr{Mode: 0o644}, uint64(t)+1, b.nextOp())
	b.must(err)
	_, err = f.Write(content)
	b.must(errors.Join(err, f.Close()))
}

// stage makes a staging with an accepted manifest of n tokens from first on.
func (b *bench) stage(name string, first, n int) *Draft {
	b.t.Helper()
	d, err := b.Create(b.ident, name, index.Attr{Mode: 0o755}, b.nextOp())
	b.must(err)
	b.write(d, EntryTokens, tokens(first, n))
	b.write(d, EntryManifest, []byte(manifest(n, name)))
	b.must(d.Accept(b.t.Context()))
	return d
}

// missing lists the slots that the plan wants.
func (b *bench) missing(d *Draft) []int {
	b.t.Helper()
	_, err := d.PlanJSON()
	b.must(err)
	slots, err := d.incomplete()
	b.must(err)
	return slots
}

// place is where a slot's page belongs, and its name there.
func place(d *Draft, slot int) (Place, string) {
	rank, group, i := d.Layout().At(slot)
	return Place{LevelGroup, rank, group}, index.PositionName(d.Layout().Groups[group].Positions[i])
}

// writePage writes a whole page, or n bytes of it.
func (b *bench) writePage(d *Draft, slot, n int) error {
	p, name := place(d, slot)
	id, f, err := d.CreatePage(b.t.Context(), p, name, Owner{Mode: 0o644}, b.nextOp())
	if err != nil {
		return err
	}
	d.m.Opened(id)
	_, err = f.Write(bytes.Repeat([]byte{byte(slot)}, n))
	return errors.Join(err, f.Close())
}

func (b *bench) fill(d *Draft) int {
	b.t.Helper()
	slots := b.missing(d)
	for _, s := range slots {
		b.must(b.writePage(d, s, pageBytes))
	}
	return len(slots)
}

func (b *bench) publish(d *Draft) *index.Generation {
	b.t.Helper()
	g, err := d.Publish(d.mu.content.derived.Name, b.nextOp(), func(*index.Generation) {})
	b.must(err)
	return g
}

func wantErrno(t *testing.T, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// usage checks the budget, in pages.
func (b *bench) usage(held, reserved int64) {
	b.t.Helper()
	if h, r := b.budget.Usage(); h != held*pageBytes || r != reserved*pageBytes {
		b.t.Fatalf("%d pages held, %d reserved; want %d and %d", h/pageBytes, r/pageBytes, held, reserved)
	}
}

// files counts the page files in RAM.
func (b *bench) files() (n int) {
	b.t.Helper()
	b.must(b.ram.Each(func(pages.ID, pages.Stat) error { n++; return nil }))
	return n
}

// empty checks that no staging has left anything behind.
func (b *bench) noStagings() {
	b.t.Helper()
	left, err := os.ReadDir(filepath.Join(b.dir, "ram", "s"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 || len(b.All()) > 0 || b.Count() != 0 {
		b.t.Fatalf("%d directories, %d stagings are left (%v)", len(left), len(b.All()), err)
	}
}
