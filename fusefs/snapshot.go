package fusefs

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
)

// What a made file says is fixed when it is opened. It lies in a small file of
// the RAM tier as long as the handle is open, so that a reader gets the second
// half from the next daemon as it got the first from this one.

func (fs *FS) snapshotPath(h *handle) string {
	return filepath.Join(fs.cfg.RAMDir, "h", strconv.FormatUint(h.number(), 16))
}

// openSnapshots makes the place for them; those of a former mount go.
func (fs *FS) openSnapshots() error {
	dir := filepath.Join(fs.cfg.RAMDir, "h")
	if fs.cfg.FreshMount {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o700)
}

// maxSnapshots bounds what snapshots take of the RAM tier, bytes. It is not
// reserved there.
const maxSnapshots = 32 << 20

// keepSnapshot fixes what the handle reads. ENOMEM if clients have too much fixed
// already; the handle is closed then.
func (fs *FS) keepSnapshot(h *handle, b []byte) error {
	if err := fs.clients.charge(h, int64(len(b))); err != nil && h.node.kind() != kindFixed {
		fs.count.memoryRefused.Add(1)
		fs.dropHandle(h)
		return err
	}
	h.bytes = b
	more := int64(len(b)) - h.kept // a request that is sent again finds its handle
	if fs.snapshotted.Add(more) > maxSnapshots {
		fs.snapshotted.Add(-more)
		return nil
	}
	h.kept += more
	// Without it only a daemon's death within this handle's life would show.
	if err := os.WriteFile(fs.snapshotPath(h), b, 0o600); err != nil {
		os.Remove(fs.snapshotPath(h)) // a part of it would be taken for all of it
	}
	return nil
}

// adoptSnapshot counts what a former daemon has kept for the handle.
func (fs *FS) adoptSnapshot(h *handle) {
	if !h.node.isMade() && h.node.kind() != kindManifest {
		return
	}
	if st, err := os.Stat(fs.snapshotPath(h)); err == nil {
		h.kept = st.Size()
		fs.snapshotted.Add(h.kept)
	}
}

func (fs *FS) dropSnapshot(h *handle) {
	if h.node.isMade() || h.node.kind() == kindManifest {
		os.Remove(fs.snapshotPath(h))
		fs.snapshotted.Add(-h.kept)
	}
}

// snapshot is what the handle reads, nil if nothing was fixed.
func (fs *FS) snapshot(h *handle) []byte {
	if h.bytes != nil {
		return h.bytes
	}
	b, err := os.ReadFile(fs.snapshotPath(h))
	if err != nil {
		return nil
	}
	return b
}

// isMade reports whether the node is a file that is made when it is opened.
func (n nodeID) isMade() bool {
	return n.kind() == kindPlan || n.kind() == kindError || n.kind() == kindFixed && !n.isDir()
}

// snapshotAttr gives a made file, asked for through its handle, the size that the
// handle reads.
func (fs *FS) snapshotAttr(in *fuse.GetAttrIn, out *fuse.Attr) {
	if in.Flags()&fuse.FUSE_GETATTR_FH == 0 || !nodeID(in.NodeId).isMade() {
		return
	}
	if h, ok := fs.handles.get(in.Fh()); ok {
		if b := fs.snapshot(h); b != nil {
			out.Size = uint64(len(b))
		}
	}
}

// openAttr tells of a file that has no name any more but is open: what is open
// keeps its bytes, and fstat works. False if no handle knows.
func (fs *FS) openAttr(n nodeID, out *fuse.Attr) bool {
	if n.isDir() {
		return false
	}
	for _, h := range fs.handles.of(n) {
		a := index.Attr{Mode: 0o444, Mtime: h.rec.opened}
		if b := fs.snapshot(h); b != nil {
			*out = fuse.Attr{Ino: uint64(n), Blksize: 4096}
			setFile(out, a, int64(len(b)))
			return true
		}
		if st, err := h.file.stat(); err == nil {
			*out = fuse.Attr{Ino: uint64(n), Blksize: 4096}
			a.Mtime = st.ModTime().UnixNano()
			setFile(out, a, st.Size())
			return true
		}
	}
	return false
}
