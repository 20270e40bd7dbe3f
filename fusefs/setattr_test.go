package fusefs

import (
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
)

// TestAttributesSetAtOnce: of a chown and a touch at once neither is lost.
func TestAttributesSetAtOnce(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	nodes := k.publish(1)
	i := k.fs.idx.GenerationByID(nodes[0].generation()).Identity
	d := testDraft(t, k.fs, "other", 1, 7)
	set := func(n nodeID, valid uint32) {
		in := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: fuse.InHeader{NodeId: uint64(n)}, Valid: valid}}
		in.Owner = fuse.Owner{Uid: 70, Gid: 71}
		if s := k.fs.SetAttr(nil, &in, new(fuse.AttrOut)); !s.Ok() {
			t.Errorf("%x: %v", n, s)
		}
	}
	day := time.Unix(86400, 0)
	for name, n := range map[string]nodeID{
		"root": nodeRoot, "model": makeNode(kindModel, i.Model.ID), "identity": makeNode(kindIdentity, i.ID),
		"document": makeNode(kindDocument, i.ID), "generation": nodes[0], "manifest": nodes[1], "rank": nodes[2], "page": nodes[3],
		"staging": placeNode(d.ID, staging.Place{}),
	} {
		var other sync.WaitGroup
		var once sync.Once
		k.fs.now = func() time.Time { // which the touch asks for when it knows what it changes
			once.Do(func() {
				done := make(chan struct{})
				other.Go(func() { defer close(done); set(n, fuse.FATTR_UID|fuse.FATTR_GID) })
				select {
				case <-done:
				case <-time.After(50 * time.Millisecond): // it waits
				}
			})
			return day
		}
		set(n, fuse.FATTR_MTIME|fuse.FATTR_MTIME_NOW)
		other.Wait()
		k.fs.now = time.Now
		var a fuse.Attr
		if _, err := k.fs.getAttr(n, &a); err != nil || a.Uid != 70 || a.Gid != 71 || a.Mtime != 86400 {
			t.Errorf("%s: %d, %d, %d (%v)", name, a.Uid, a.Gid, a.Mtime, err)
		}
	}
}
