package fusefs

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
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
