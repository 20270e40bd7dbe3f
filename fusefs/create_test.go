package fusefs

import (
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// TestRefusedCreateLeavesNothing: who gets no handle has made no file, and
// truncated none.
func TestRefusedCreateLeavesNothing(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	d := testDraft(t, k.fs, "s", 3, 1)
	empty, err := k.fs.stage.Create(d.Identity, "empty", index.Attr{Mode: 0o755}, 0)
	if err != nil {
		t.Fatal(err)
	}
	byHand, err := k.fs.idx.CreateIdentity(d.Identity.Model, "0123456789012345678901234567890123456789", nil, index.Attr{Mode: 0o755}, 0)
	if err != nil {
		t.Fatal(err)
	}
	root, group := placeNode(empty.ID, staging.Place{}), placeNode(d.ID, staging.Place{Level: staging.LevelGroup})
	held, reserved := k.fs.budget.Usage()
	limit := k.fs.maxHandles
	for _, f := range []struct {
		dir  nodeID
		name string
	}{
		{root, "tokens"}, {root, "manifest.json"}, {root, ".scratch"}, {group, "00000001"}, {group, ".00000002.x"},
		{makeNode(kindIdentity, byHand.ID), documentName}, {makeNode(kindIdentity, byHand.ID), ".identity.json.x"},
	} {
		create := func() fuse.Status {
			var out fuse.CreateOut
			s := k.fs.Create(nil, &fuse.CreateIn{InHeader: fuse.InHeader{NodeId: uint64(f.dir), Unique: 7}, Flags: syscall.O_RDWR | syscall.O_EXCL, Mode: 0o644}, f.name, &out)
			if s.Ok() {
				k.fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
			}
			return s
		}
		k.fs.maxHandles = 0
		if s := create(); s != fuse.Status(syscall.EMFILE) {
			t.Errorf("%s without a handle: %v", f.name, s)
		}
		if s := k.fs.Lookup(nil, &fuse.InHeader{NodeId: uint64(f.dir)}, f.name, new(fuse.EntryOut)); s != fuse.ENOENT {
			t.Errorf("%s is there: %v", f.name, s)
		}
		if h, r := k.fs.budget.Usage(); h+r != held+reserved {
			t.Errorf("%s: %d bytes are held and %d reserved, before it was %d and %d", f.name, h, r, held, reserved)
		}
		k.fs.maxHandles = limit
		if s := create(); !s.Ok() {
			t.Errorf("%s with a handle: %v", f.name, s)
		}
		if f.dir != group {
			n, before, after := k.lookup(f.dir, f.name), fuse.Attr{}, fuse.Attr{}
			if err := k.fs.truncate(n, 10, false); err != nil {
				t.Fatal(err)
			}
			_, err := k.fs.getAttr(n, &before)
			k.fs.maxHandles = 0
			s := k.fs.Open(nil, &fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(n)}, Flags: syscall.O_WRONLY | syscall.O_TRUNC}, new(fuse.OpenOut))
			k.fs.maxHandles = limit
			if _, aerr := k.fs.getAttr(n, &after); s != fuse.Status(syscall.EMFILE) || before.Size != 10 || after.Size != 10 {
				t.Errorf("%s: %v; of %d bytes (%v) %d are left (%v)", f.name, s, before.Size, err, after.Size, aerr)
			}
		}
		// One of these can be written at a time.
		if s := k.fs.Unlink(nil, &fuse.InHeader{NodeId: uint64(f.dir)}, f.name); f.name == documentName && !s.Ok() {
			t.Error(s)
		}
	}
}
