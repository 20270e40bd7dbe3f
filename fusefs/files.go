package fusefs

import (
	"context"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
)

// openTreeFile opens a manifest or a staging's tokens. They can be written until
// the manifest is accepted, and are served by the ordinary path.
func (fs *FS) openTreeFile(in *fuse.InHeader, n nodeID, flags uint32, write bool, out *fuse.OpenOut) error {
	t, err := fs.treeOf(n)
	if err != nil {
		return err
	}
	if t.gen != nil {
		if write {
			return syscall.EROFS
		}
		c, err := fs.idx.Contents(t.gen)
		if err != nil {
			return err
		}
		h, err := fs.openHandle(in, n, flags, 0)
		if err != nil {
			return err
		}
		if err := fs.keepSnapshot(h, c.Manifest); err != nil {
			return err
		}
		out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_KEEP_CACHE|fuse.FOPEN_NOFLUSH
		return nil
	}
	path := t.draft.FilePath(fileType(n.kind()))
	if write && (t.draft.Ghost() || t.draft.Accepted()) {
		return syscall.EROFS
	}
	return fs.openDirect(in, n, flags, path, out)
}

// openDirect gives a handle whose reads and writes all come here, on the file of
// that path. Who is refused it has not truncated the file.
func (fs *FS) openDirect(in *fuse.InHeader, n nodeID, flags uint32, path string, out *fuse.OpenOut) error {
	h, err := fs.openHandle(in, n, flags, 0)
	if err != nil {
		return err
	}
	if flags&syscall.O_TRUNC != 0 {
		if err := os.Truncate(path, 0); err != nil {
			fs.dropHandle(h)
			return err
		}
	}
	out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_DIRECT_IO
	return nil
}

// treeFile is the file behind a handle on a manifest, tokens or an identity
// document that is being written.
func (fs *FS) treeFile(h *handle) (*os.File, error) {
	flags := int(h.rec.flags & syscall.O_ACCMODE)
	if h.node.kind() == kindDocument {
		i, err := fs.identity(h.node)
		if err != nil {
			return nil, err
		}
		if h.writes() && i.Document() != nil {
			return nil, syscall.EROFS
		}
		return h.file.get(func() (*os.File, error) { return os.OpenFile(fs.docPath(i.ID), flags, 0) })
	}
	t, err := fs.treeOf(h.node)
	if err != nil {
		return nil, err
	}
	if t.draft == nil || h.writes() && t.draft.Accepted() {
		return nil, syscall.EROFS
	}
	return h.file.get(func() (*os.File, error) {
		return os.OpenFile(t.draft.FilePath(fileType(h.node.kind())), flags, 0)
	})
}

// readFile reads from a file that is no page.
func (fs *FS) readFile(h *handle, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	var f *os.File
	if h.node.kind() == kindManifest {
		f = h.file.opened() // who has begun with what was written does not end with what is published
	}
	if f == nil {
		b, err := fs.fixedBytes(h)
		if err != nil {
			return nil, status(fs.log, err)
		}
		if b != nil {
			lo := min(in.Offset, uint64(len(b)))
			hi := min(lo+uint64(len(buf)), uint64(len(b)))
			return fuse.ReadResultData(b[lo:hi]), fuse.OK
		}
		if f, err = fs.treeFile(h); err != nil {
			return nil, status(fs.log, err)
		}
	}
	n, err := f.ReadAt(buf, int64(in.Offset))
	if n == 0 && err != nil && err.Error() != "EOF" {
		return nil, status(fs.log, err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// fixedBytes is what a handle reads that is not a file of the RAM tier: a
// published manifest, a document, a made file. nil for the others.
func (fs *FS) fixedBytes(h *handle) ([]byte, error) {
	if h.node.isMade() || h.node.kind() == kindManifest {
		if b := fs.snapshot(h); b != nil {
			return b, nil
		}
	}
	switch h.node.kind() {
	case kindManifest:
		if g := fs.idx.GenerationByID(h.node.generation()); g != nil {
			c, err := fs.idx.Contents(g)
			if err != nil {
				return nil, err
			}
			return c.Manifest, nil
		}
		return nil, nil
	case kindDocument:
		i, err := fs.identity(h.node)
		if err != nil || i.Document() == nil {
			return nil, err
		}
		return i.Document().Doc, nil
	case kindTokens:
		return nil, nil
	}
	return fs.made(h.node)
}

// made makes the content of a file that is not stored.
func (fs *FS) made(n nodeID) ([]byte, error) {
	switch n.kind() {
	case kindPlan, kindError:
		d, ok := fs.stage.ByID(n.generation())
		if !ok {
			return nil, syscall.ENOENT
		}
		if n.kind() == kindPlan {
			return d.PlanJSON()
		}
		return []byte(d.ErrorText() + "\n"), nil
	case kindFixed:
		if f, ok := controlFiles[n]; ok {
			return f.make(fs)
		}
	}
	return nil, syscall.ENOENT
}

// openMade opens a made file: what it says is fixed when it is opened.
func (fs *FS) openMade(in *fuse.InHeader, n nodeID, flags uint32, out *fuse.OpenOut) error {
	b, err := fs.made(n)
	if err != nil {
		return err
	}
	h, err := fs.openHandle(in, n, flags, 0)
	if err != nil {
		return err
	}
	if err := fs.keepSnapshot(h, b); err != nil {
		return err
	}
	out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_DIRECT_IO|fuse.FOPEN_NOFLUSH
	return nil
}

// check looks at a written file when it is closed or synced: a manifest is
// accepted or refused, and so is an identity document.
func (fs *FS) check(h *handle) error {
	if !h.writes() {
		return nil
	}
	switch h.node.kind() {
	case kindManifest:
		if d, ok := fs.stage.ByID(h.node.generation()); ok && !d.Ghost() {
			return d.Accept(context.Background())
		}
	case kindDocument:
		i, err := fs.identity(h.node)
		if err != nil {
			return err
		}
		if fs.pendingDocument(i) != documentName {
			return nil // a scratch file is checked when it is renamed
		}
		return fs.acceptDocument(i, 0)
	}
	return nil
}

// treeEntryType: what a written name in a staging's root is to be.
func treeEntryType(name string) (staging.EntryType, nodeKind, bool) {
	switch name {
	case "manifest.json":
		return staging.EntryManifest, kindManifest, true
	case "tokens":
		return staging.EntryTokens, kindTokens, true
	}
	return 0, 0, false
}
