package fusefs

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fusefs/staging"
)

// TestSnapshotWithoutRoom: of what finds no room in the RAM tier nothing is left for
// the next daemon, which would take a part of it for all of it.
func TestSnapshotWithoutRoom(t *testing.T) {
	fs := quietFS(t)
	d := testDraft(t, fs, "s", 3, 1)
	dir := filepath.Join(fs.cfg.RAMDir, "h")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skip("a small tmpfs:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	h, err := fs.openHandle(&fuse.InHeader{}, genNode(kindPlan, d.ID, staging.Place{}), syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.dropHandle(h)
	if err := fs.keepSnapshot(h, make([]byte, 8192)); err != nil {
		t.Fatal(err)
	}
	if b := fs.snapshot(h); len(b) != 8192 {
		t.Errorf("this daemon reads %d bytes", len(b))
	}
	h.bytes = nil // the next daemon has none
	if b := fs.snapshot(h); b != nil {
		t.Errorf("the next daemon finds %d bytes of 8192", len(b))
	}
}
