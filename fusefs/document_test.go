package fusefs

import (
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
)

// TestDocumentAfterScratch: the scratch name that a killed daemon has left is not
// that of a document which is written later.
func TestDocumentAfterScratch(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	i := k.fs.idx.GenerationByID(k.publish(1)[0].generation()).Identity
	other, err := k.fs.idx.CreateIdentity(i.Model, "0123456789012345678901234567890123456789", nil, index.Attr{Mode: 0o755}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.fs.docNamePath(other.ID), []byte(".identity.json.x"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := makeNode(kindIdentity, other.ID)
	var out fuse.CreateOut
	k.must(k.fs.Create(nil, &fuse.CreateIn{InHeader: fuse.InHeader{NodeId: uint64(dir)}, Flags: syscall.O_RDWR, Mode: 0o644}, documentName, &out))
	if n := k.lookup(dir, documentName); n != nodeID(out.NodeId) {
		t.Errorf("it is node %x, made was %x", n, out.NodeId)
	}
	k.fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
}

// TestPendingDocumentRemovedTwice: an unlink that a killed daemon had done is not
// ENOENT when it is sent again.
func TestPendingDocumentRemovedTwice(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	i := k.fs.idx.GenerationByID(k.publish(1)[0].generation()).Identity
	other, err := k.fs.idx.CreateIdentity(i.Model, "0123456789012345678901234567890123456789", nil, index.Attr{Mode: 0o755}, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := uint64(makeNode(kindIdentity, other.ID))
	for _, name := range []string{documentName, ".identity.json.x"} {
		var out fuse.CreateOut
		k.must(k.fs.Create(nil, &fuse.CreateIn{InHeader: fuse.InHeader{NodeId: dir}, Flags: syscall.O_RDWR, Mode: 0o644}, name, &out))
		k.fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
		k.must(k.fs.Unlink(nil, &fuse.InHeader{NodeId: dir, Unique: 9}, name))
		k.must(k.fs.Unlink(nil, &fuse.InHeader{NodeId: dir, Unique: 9 | resend}, name))
		if s := k.fs.Unlink(nil, &fuse.InHeader{NodeId: dir, Unique: 11}, name); s != fuse.ENOENT {
			t.Errorf("another unlink of %s: %v", name, s)
		}
	}
}
