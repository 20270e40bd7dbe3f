package fusefs

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// again gives a filesystem that takes over from one whose daemon is killed.
func again(t *testing.T, old *FS) *FS {
	t.Helper()
	cfg := old.cfg
	cfg.FreshMount = false
	old.idx.Close()
	old.idx, old.tiers = nil, nil // its cleanup has nothing to do
	return quietFSOf(t, cfg)
}

// TestKilledAfterAnUnlink: what a killed daemon's staging had let go is charged to
// nobody.
func TestKilledAfterAnUnlink(t *testing.T) {
	fs := quietFS(t)
	d := testDraft(t, fs, "s", 3, 1)
	ids := fillDraft(t, d, 3)
	group := placeNode(d.ID, staging.Place{Level: staging.LevelGroup})
	if s := fs.Unlink(nil, &fuse.InHeader{NodeId: uint64(group)}, fmt.Sprintf("%08d", 1)); !s.Ok() {
		t.Fatal(s)
	}
	if _, err := fs.ram.Stat(ids[1]); !errorIs(err, syscall.ENOENT) {
		t.Fatalf("the page that was unlinked: %v", err)
	}
	held, reserved := fs.budget.Usage()
	for range 2 {
		fs = again(t, fs)
		if h, r := fs.budget.Usage(); h != held || r != reserved {
			t.Fatalf("%d held, %d reserved; was %d and %d", h, r, held, reserved)
		}
	}
}

// TestKilledAfterAnOpenForWriting: the handle of half a page was there, and the
// answer was not sent. The request that is sent again gets that handle.
func TestKilledAfterAnOpenForWriting(t *testing.T) {
	fs := quietFS(t)
	d := testDraft(t, fs, "s", 3, 1)
	group := placeNode(d.ID, staging.Place{Level: staging.LevelGroup})
	const flags, op = syscall.O_WRONLY, 1000
	var made fuse.CreateOut
	in := fuse.CreateIn{InHeader: fuse.InHeader{NodeId: uint64(group), Unique: 10}, Flags: flags | syscall.O_CREAT | syscall.O_EXCL, Mode: 0o644}
	if s := fs.Create(nil, &in, "00000000", &made); !s.Ok() {
		t.Fatal(s)
	}
	read := fuse.OpenIn{InHeader: fuse.InHeader{NodeId: made.NodeId, Unique: 12}} // it stays, so that the page is not abandoned
	var out fuse.OpenOut
	if s := fs.Open(nil, &read, &out); !s.Ok() {
		t.Fatal(s)
	}
	fs.Release(nil, &fuse.ReleaseIn{Fh: made.Fh})
	write := fuse.OpenIn{InHeader: fuse.InHeader{NodeId: made.NodeId, Unique: op}, Flags: flags}
	if s := fs.Open(nil, &write, &out); !s.Ok() {
		t.Fatal(s)
	}
	fs = again(t, fs)
	handle := out.Fh
	write.Unique |= resend
	if s := fs.Open(nil, &write, &out); !s.Ok() || out.Fh != handle {
		t.Errorf("sent again: %v, handle %x, was %x", s, out.Fh, handle)
	}
	write.Unique = op + 2
	if s := fs.Open(nil, &write, &out); s != fuse.EROFS {
		t.Errorf("another writer: %v", s)
	}
}

// TestKilledAfterADocumentWasMade: a create of identity.json that is sent again
// finds what it has made itself.
func TestKilledAfterADocumentWasMade(t *testing.T) {
	for _, name := range []string{documentName, ".identity.json.x"} {
		t.Run(name, func(t *testing.T) {
			fs := quietFS(t)
			doc, err := index.ParseDocument(testIdentity(1))
			if err != nil {
				t.Fatal(err)
			}
			m, err := fs.idx.CreateModel("m", index.Attr{Mode: 0o755}, 0)
			if err != nil {
				t.Fatal(err)
			}
			i, err := fs.idx.CreateIdentity(m, doc.Name(), nil, index.Attr{Mode: 0o755}, 0)
			if err != nil {
				t.Fatal(err)
			}
			dir := makeNode(kindIdentity, i.ID)
			f, _, err := fs.makeDocument(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			fs = again(t, fs)
			in := fuse.CreateIn{InHeader: fuse.InHeader{NodeId: uint64(dir), Unique: 10}, Flags: syscall.O_WRONLY | syscall.O_CREAT | syscall.O_EXCL, Mode: 0o644}
			var out fuse.CreateOut
			if s := fs.Create(nil, &in, name, &out); s != fuse.Status(syscall.EEXIST) {
				t.Errorf("another create of %s: %v", name, s)
			}
			in.Unique |= resend
			if s := fs.Create(nil, &in, name, &out); !s.Ok() {
				t.Fatalf("%s, sent again: %v", name, s)
			}
			if _, s := fs.Write(nil, &fuse.WriteIn{Fh: out.Fh}, testIdentity(1)); !s.Ok() {
				t.Errorf("writing: %v", s)
			}
		})
	}
}
