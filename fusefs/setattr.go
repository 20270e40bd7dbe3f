package fusefs

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// SetAttr implements fuse.RawFileSystem. Who may is the kernel's to decide
// (default_permissions); here it is what can be set at all.
func (fs *FS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	n := nodeID(in.NodeId)
	if size, ok := in.GetSize(); ok {
		_, open := in.GetFh()
		if err := fs.truncate(n, int64(size), open); err != nil {
			return status(fs.log, err)
		}
	}
	if err := fs.setAttr(n, in); err != nil {
		return status(fs.log, err)
	}
	ttl, err := fs.getAttr(n, &out.Attr)
	out.SetTimeout(ttl)
	return status(fs.log, err)
}

// changing is change for who has the attributes to change.
func (fs *FS) changing(in *fuse.SetAttrIn) func(index.Attr) index.Attr {
	return func(a index.Attr) index.Attr { return fs.change(in, a) }
}

// change applies what the request sets to attributes.
func (fs *FS) change(in *fuse.SetAttrIn, a index.Attr) index.Attr {
	if mode, ok := in.GetMode(); ok {
		a.Mode = mode
	}
	if uid, ok := in.GetUID(); ok {
		a.UID = uid
	}
	if gid, ok := in.GetGID(); ok {
		a.GID = gid
	}
	if t, ok := in.GetMTime(); ok {
		if in.Valid&fuse.FATTR_MTIME_NOW != 0 {
			t = fs.now()
		}
		a.Mtime = t.UnixNano()
	}
	return a
}

const settable = fuse.FATTR_MODE | fuse.FATTR_UID | fuse.FATTR_GID | fuse.FATTR_MTIME

func (fs *FS) setAttr(n nodeID, in *fuse.SetAttrIn) error {
	if in.Valid&settable == 0 {
		return nil // a size, or an atime, which is not kept
	}
	switch n.kind() {
	case kindFixed:
		if n != nodeRoot {
			return syscall.EPERM
		}
		return fs.root.Set(fs.changing(in))
	case kindModel:
		m, err := fs.model(n)
		if err != nil {
			return err
		}
		if err := fs.idx.SetModelAttr(m, fs.changing(in)); err != nil {
			return err
		}
		fs.notify.attributesOf(makeNode(kindIdentify, m.ID))
		return nil
	case kindIdentity:
		i, err := fs.identity(n)
		if err != nil {
			return err
		}
		if err := fs.idx.SetIdentityAttr(i, fs.changing(in)); err != nil {
			return err
		}
		fs.notify.attributesOf(makeNode(kindStagingDir, i.ID), makeNode(kindFind, i.ID)) // they follow
		return nil
	case kindDocument:
		i, err := fs.identity(n)
		if err != nil {
			return err
		}
		return fs.idx.SetDocumentAttr(i, fs.changing(in))
	case kindPage:
		return fs.setPageAttr(n, in)
	}
	if !n.inGeneration() {
		return syscall.EPERM
	}
	return fs.setTreeAttr(n, in)
}

func (fs *FS) setTreeAttr(n nodeID, in *fuse.SetAttrIn) error {
	t, err := fs.treeOf(n)
	if err != nil {
		return err
	}
	if t.draft != nil {
		err := fs.setDraftAttr(n, t.draft, in)
		if !errorIs(err, syscall.ENOENT) || fs.idx.GenerationByID(n.generation()) == nil {
			return err
		}
		t = tree{gen: fs.idx.GenerationByID(n.generation())} // published in this instant
	}
	return fs.setGenerationAttr(n, t.gen, in)
}

func (fs *FS) setDraftAttr(n nodeID, d *staging.Draft, in *fuse.SetAttrIn) error {
	if m, ok := in.GetMTime(); ok && (n.kind() == kindManifest || n.kind() == kindTokens) {
		if err := os.Chtimes(d.FilePath(fileType(n.kind())), time.Time{}, m); err != nil {
			return err
		}
	}
	err := d.SetAttr(n.sub(), func(a index.Attr) index.Attr {
		a = fs.change(in, a)
		if !n.isDir() {
			a.Mode &= 0o777 // no file here is ever setuid or setgid: see CAP_HANDLE_KILLPRIV_V2
		}
		return a
	})
	if err != nil || n.sub() != 0 {
		return err
	}
	fs.notify.attributesOf(draftDirs(d)...) // what lies below follows
	return nil
}

func (fs *FS) setGenerationAttr(n nodeID, g *index.Generation, in *fuse.SetAttrIn) error {
	if n.sub() == 0 {
		if err := fs.idx.SetGenerationAttr(g, fs.changing(in)); err != nil {
			return err
		}
		if c, err := fs.idx.Contents(g); err == nil {
			fs.notify.attributesOf(append(treeDirs(g.ID, c.Layout), genNode(kindManifest, g.ID, staging.Place{}))...)
		}
		return nil
	}
	return fs.idx.SetSubAttr(g, n.sub(), func(a index.Attr) index.Attr {
		a = fs.change(in, a)
		if n.kind() == kindManifest {
			a.Mode = 0o444
		}
		return a
	})
}

// setPageAttr: owner and mtime of a page are kept; its mode is 0444 once it is
// published.
func (fs *FS) setPageAttr(n nodeID, in *fuse.SetAttrIn) error {
	if ref, staged := fs.stage.StagedPage(n.page()); staged {
		return fs.setStagedAttr(ref, in)
	}
	p, err := fs.idx.Page(n.page())
	if err != nil {
		return err
	}
	return fs.idx.SetPageAttr(p, func(a index.Attr) index.Attr {
		a = fs.change(in, a)
		a.Mode = 0o444
		return a
	})
}

func (fs *FS) setStagedAttr(ref staging.PageRef, in *fuse.SetAttrIn) error {
	ref.AttrSet()
	path := fs.ram.Path(ref.ID)
	if mode, ok := in.GetMode(); ok {
		if err := os.Chmod(path, os.FileMode(mode&0o777)); err != nil {
			return err
		}
	}
	uid, hasUID := in.GetUID()
	gid, hasGID := in.GetGID()
	if hasUID || hasGID {
		u, g := -1, -1
		if hasUID {
			u = int(uid)
		}
		if hasGID {
			g = int(gid)
		}
		if err := os.Chown(path, u, g); err != nil {
			return err
		}
	}
	if t, ok := in.GetMTime(); ok {
		ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(t.UnixNano())}
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, ts, 0)
	}
	return nil
}

// truncate sets a file's size, while it can still be written. open: by a descriptor.
// EFBIG, as of a write: what is longer than it may ever be would be read into memory.
func (fs *FS) truncate(n nodeID, size int64, open bool) error {
	if uint64(size) > mostBytes(n.kind()) {
		return syscall.EFBIG
	}
	switch n.kind() {
	case kindPage:
		return fs.truncatePage(n, size, open)
	case kindManifest, kindTokens:
		t, err := fs.treeOf(n)
		if err != nil {
			return err
		}
		if t.draft == nil || t.draft.Accepted() || t.draft.Ghost() {
			return syscall.EROFS
		}
		return os.Truncate(t.draft.FilePath(fileType(n.kind())), size)
	case kindDocument:
		i, err := fs.identity(n)
		if err != nil {
			return err
		}
		if i.Document() != nil {
			return syscall.EROFS
		}
		return os.Truncate(fs.docPath(i.ID), size)
	case kindFind, kindIdentify:
		return nil // O_TRUNC by a shell's redirection
	}
	return syscall.EROFS
}

// Fallocate implements fuse.RawFileSystem for staged pages. EOPNOTSUPP for other
// files: posix_fallocate writes there then.
func (fs *FS) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	h, ok := fs.handles.get(in.Fh)
	switch {
	case !ok:
		return fuse.EBADF
	case h.node.kind() != kindPage:
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	if ref, _ := fs.stage.StagedPage(h.node.page()); ref.Final() {
		return fuse.EROFS
	}
	f, err := fs.ram.OpenRW(h.node.page())
	if err != nil {
		return status(fs.log, err)
	}
	defer f.Close()
	return status(fs.log, unix.Fallocate(int(f.Fd()), in.Mode, int64(in.Offset), int64(in.Length)))
}

// Lseek implements fuse.RawFileSystem: SEEK_DATA and SEEK_HOLE of a page.
func (fs *FS) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	h, ok := fs.handles.get(in.Fh)
	if !ok {
		return fuse.EBADF
	}
	if h.node.kind() != kindPage {
		return fs.seekPlain(h, in, out)
	}
	f, err := fs.ram.Open(h.node.page())
	if errorIs(err, syscall.ENOENT) {
		return fs.seekPlain(h, in, out) // served from disk
	}
	if err != nil {
		return status(fs.log, err)
	}
	defer f.Close()
	off, err := unix.Seek(int(f.Fd()), int64(in.Offset), int(in.Whence))
	out.Offset = uint64(off)
	return status(fs.log, err)
}

// seekPlain answers for files without holes.
func (fs *FS) seekPlain(h *handle, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	var a fuse.Attr
	_, err := fs.getAttr(h.node, &a)
	if err != nil && !(errorIs(err, syscall.ENOENT) && fs.openAttr(h.node, &a)) {
		return status(fs.log, err)
	}
	if in.Offset >= a.Size {
		return fuse.Status(syscall.ENXIO)
	}
	out.Offset = in.Offset
	if in.Whence == unix.SEEK_HOLE {
		out.Offset = a.Size
	}
	return fuse.OK
}

// CopyFileRange implements fuse.RawFileSystem: the kernel's own copy is used.
func (fs *FS) CopyFileRange(<-chan struct{}, *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}
