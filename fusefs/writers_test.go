package fusefs

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
)

// create makes a file in a directory and writes so many bytes; its handle stays.
func (k *rawClient) create(dir nodeID, name string, bytes int) (nodeID, uint64) {
	k.t.Helper()
	in := fuse.CreateIn{InHeader: fuse.InHeader{NodeId: uint64(dir)}, Flags: syscall.O_CREAT | syscall.O_EXCL | syscall.O_WRONLY, Mode: 0o644}
	var out fuse.CreateOut
	k.must(k.fs.Create(nil, &in, name, &out))
	_, s := k.fs.Write(nil, &fuse.WriteIn{InHeader: fuse.InHeader{NodeId: out.NodeId}, Fh: out.Fh}, make([]byte, bytes))
	k.must(s)
	return nodeID(out.NodeId), out.Fh
}

func (k *rawClient) close(fh uint64) {
	k.must(k.fs.Flush(nil, &fuse.FlushIn{Fh: fh}))
	k.fs.Release(nil, &fuse.ReleaseIn{Fh: fh})
}

// TestOpenedAsScratch: a scratch file that gets its position, and is published,
// while it is opened for writing takes no writer, and keeps its bytes.
func TestOpenedAsScratch(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	d := testDraft(t, k.fs, "s", 1, 1)
	group := placeNode(d.ID, staging.Place{Level: staging.LevelGroup})
	n, fh := k.create(group, ".x", 4096)
	k.close(fh)
	k.fs.takingUp.Of(n.page()).Lock() // whoever is there before
	opened := make(chan fuse.Status)
	go func() {
		in := fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(n)}, Flags: syscall.O_WRONLY | syscall.O_TRUNC}
		opened <- k.fs.Open(nil, &in, new(fuse.OpenOut))
	}()
	time.Sleep(50 * time.Millisecond)
	k.must(k.fs.Rename(nil, &fuse.RenameIn{InHeader: fuse.InHeader{NodeId: uint64(group)}, Newdir: uint64(group)}, ".x", "00000000"))
	k.must(k.fs.Rename(nil, &fuse.RenameIn{InHeader: fuse.InHeader{NodeId: uint64(makeNode(kindStagingDir, d.Identity.ID))}, Newdir: uint64(makeNode(kindIdentity, d.Identity.ID))}, "s", planName(t, d)))
	k.fs.takingUp.Of(n.page()).Unlock()
	if s := <-opened; s != fuse.EROFS {
		t.Errorf("opened for writing: %v", s)
	}
	if st, err := k.fs.ram.Stat(n.page()); err != nil || st.Bytes != 4096 {
		t.Errorf("the published page has %d bytes (%v)", st.Bytes, err)
	}
}

// TestTruncatedWhileItIsSealed: a page that was found complete keeps its size.
func TestTruncatedWhileItIsSealed(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	const n = 300
	d := testDraft(t, k.fs, "s", n, 1)
	group := placeNode(d.ID, staging.Place{Level: staging.LevelGroup})
	sealed := 0
	for i := range n {
		page, fh := k.create(group, fmt.Sprintf("%08d", i), 4096)
		var wg sync.WaitGroup
		wg.Go(func() { k.close(fh) })
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 100 * time.Nanosecond)
			in := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: fuse.InHeader{NodeId: uint64(page)}, Valid: fuse.FATTR_SIZE}}
			k.fs.SetAttr(nil, &in, new(fuse.AttrOut))
		})
		wg.Wait()
		st, err := k.fs.ram.Stat(page.page())
		ref, ok := k.fs.stage.StagedPage(page.page())
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if !ref.Sealed() {
			continue
		}
		if sealed++; st.Bytes != 4096 {
			t.Fatalf("a complete page has %d bytes", st.Bytes)
		}
	}
	t.Logf("%d of %d pages were complete first", sealed, n)
}

// TestLeaseOverPublication: a directory that is opened in a staging is a lease on
// the generation that this becomes.
func TestLeaseOverPublication(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	d := testDraft(t, k.fs, "s", 1, 1)
	fillDraft(t, d, 1)
	var fhs []uint64
	for _, p := range []staging.Place{{}, {Level: staging.LevelRank}} {
		in, out := fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(placeNode(d.ID, p))}}, fuse.OpenOut{}
		k.must(k.fs.OpenDir(nil, &in, &out))
		fhs = append(fhs, out.Fh)
	}
	k.must(k.fs.Rename(nil, &fuse.RenameIn{InHeader: fuse.InHeader{NodeId: uint64(makeNode(kindStagingDir, d.Identity.ID))}, Newdir: uint64(makeNode(kindIdentity, d.Identity.ID))}, "s", planName(t, d)))
	for n := len(fhs); n >= 0; n-- {
		if got := k.fs.leases.count(d.ID); got != n {
			t.Errorf("%d leases with %d directories open", got, n)
		}
		if n > 0 {
			k.fs.ReleaseDir(&fuse.ReleaseIn{Fh: fhs[n-1]})
		}
	}
}
