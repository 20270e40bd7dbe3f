package fusefs

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
)

// TestTombstonesGo: a name that is used for one staging after the other has one
// tombstone, the last one's, and none when a late rank has removed it.
func TestTombstonesGo(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	own := uint32(os.Getpid())
	pids := map[int]bool{os.Getpid(): true}
	var identity nodeID
	for i := range 3 {
		dir := k.publish(uint32(i))[0]
		g := k.fs.idx.GenerationByID(dir.generation())
		identity = makeNode(kindIdentity, g.Identity.ID)
		k.fs.putTombstone(g, "s", pids, nil, k.fs.now().Add(time.Hour))
	}
	count := func() int {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(k.fs.cfg.RAMDir, "t", "*"))
		if err != nil || len(files) != len(k.fs.tombs.m) || len(files) != len(k.fs.tombs.byID) {
			t.Errorf("%d files (%v), %d by name, %d by generation", len(files), err, len(k.fs.tombs.m), len(k.fs.tombs.byID))
		}
		return len(files)
	}
	if n := count(); n != 1 {
		t.Errorf("%d tombstones of one name", n)
	}
	k.must(k.fs.Rmdir(nil, &fuse.InHeader{NodeId: uint64(makeNode(kindStagingDir, identity.object())), Caller: fuse.Caller{Pid: own}}, "s"))
	if n := count(); n != 0 {
		t.Errorf("%d tombstones after the removal", n)
	}
}

// TestBuriedBesideAClose: who has the staging open may close it while it is
// published; for the race detector.
func TestBuriedBesideAClose(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	g := k.fs.idx.GenerationByID(k.publish(1)[0].generation())
	d := testDraft(t, k.fs, "other", 1, 7)
	var open []uint64
	for range 100 {
		in, out := fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(placeNode(d.ID, staging.Place{}))}}, fuse.OpenOut{}
		k.must(k.fs.OpenDir(nil, &in, &out))
		open = append(open, out.Fh)
	}
	var closing sync.WaitGroup
	closing.Go(func() {
		for _, fh := range open {
			k.fs.ReleaseDir(&fuse.ReleaseIn{Fh: fh})
		}
	})
	k.fs.bury(d, "other", g, 1)
	closing.Wait()
}
