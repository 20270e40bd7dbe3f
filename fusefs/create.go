package fusefs

import (
	"context"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// Create implements fuse.RawFileSystem.
func (fs *FS) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	return status(fs.log, fs.create(in, name, out))
}

func (fs *FS) create(in *fuse.CreateIn, name string, out *fuse.CreateOut) error {
	dir := nodeID(in.NodeId)
	if err := checkName(name); err != nil {
		return err
	}
	// A document's file is not recorded. The kernel asks for a create when a lookup
	// has found nothing, and lets nobody else into the directory until it is told: if
	// the file is there, this request has made it.
	_, again := opOf(&in.InHeader)
	if fs.doneBefore(&in.InHeader) || again && dir.kind() == kindIdentity {
		// Made by this very request before the daemon was replaced.
		if n, ok := fs.lookupMade(dir, name); ok {
			err := fs.entryOut(n, 0, &out.EntryOut)
			if err == nil {
				err = fs.openMadeBefore(in, n, &out.OpenOut)
			}
			if !errorIs(err, syscall.ENOENT) {
				return err
			}
			// A page without a handle looks abandoned, and another rank has just
			// dropped it.
		}
	}
	f, n, err := fs.makeFile(in, dir, name)
	if err == nil {
		return fs.opened(in, dir, name, n, f, out)
	}
	if !errorIs(err, syscall.EEXIST) || in.Flags&syscall.O_EXCL != 0 {
		return err
	}
	// Another process has made it in this instant.
	n, ttl, err := fs.lookup(dir, name)
	if err != nil {
		return err
	}
	if err := fs.entryOut(n, ttl, &out.EntryOut); err != nil {
		return err
	}
	return fs.open1(&in.InHeader, n, in.Flags, &out.OpenOut)
}

// openMadeBefore opens a file for the request that made it. It may well have its
// writer's handle already: that is this request's own.
func (fs *FS) openMadeBefore(in *fuse.CreateIn, n nodeID, out *fuse.OpenOut) error {
	h, err := fs.openHandle(&in.InHeader, n, in.Flags, 0)
	if err != nil {
		return err
	}
	if n.kind() == kindPage {
		return fs.startIO(h, false, out)
	}
	out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_DIRECT_IO
	return nil
}

// lookupMade finds a file that a request made, a page included that nobody has
// opened since.
func (fs *FS) lookupMade(dir nodeID, name string) (nodeID, bool) {
	if !dir.inGeneration() {
		n, _, err := fs.lookup(dir, name)
		return n, err == nil
	}
	d, ok := fs.stage.ByID(dir.generation())
	if !ok {
		return 0, false
	}
	e, err := d.LookupAny(dir.place(), name)
	if err != nil {
		return 0, false
	}
	return draftEntryNode(d.ID, e), true
}

// makeFile makes a file where the tree has a place for it.
func (fs *FS) makeFile(in *fuse.CreateIn, dir nodeID, name string) (*os.File, nodeID, error) {
	op, _ := opOf(&in.InHeader)
	a := fs.inherit(dir, index.Attr{UID: in.Uid, GID: in.Gid, Mode: in.Mode & 0o777}, false)
	o := staging.Owner{UID: a.UID, GID: a.GID, Mode: a.Mode, TID: in.Pid}
	switch dir.kind() {
	case kindIdentity:
		return fs.makeDocument(dir, name)
	case kindGeneration, kindGroup, kindRank, kindProvisional:
	default:
		return nil, 0, syscall.EPERM
	}
	t, err := fs.treeOf(dir)
	if err != nil {
		return nil, 0, err
	}
	if t.draft == nil {
		if _, _, err := fs.lookup(dir, name); err == nil {
			return nil, 0, syscall.EEXIST
		}
		return nil, 0, syscall.EPERM
	}
	if dir.kind() == kindGeneration {
		if ft, kind, ok := treeEntryType(name); ok {
			n := genNode(kind, t.draft.ID, staging.Place{})
			f, err := t.draft.CreateFile(ft, index.Attr{Mode: o.Mode, UID: o.UID, GID: o.GID, Mtime: fs.now().UnixNano()}, n.sub(), op)
			return f, n, err
		}
	}
	var id pages.ID
	var f *os.File
	switch {
	case strings.HasPrefix(name, "."):
		id, f, err = t.draft.CreateScratch(dir.place(), name, o, op)
	case dir.kind() == kindGroup || dir.kind() == kindProvisional:
		id, f, err = t.draft.CreatePage(context.Background(), dir.place(), name, o, op)
		if err == nil {
			t.draft.Worked(in.Pid)
			fs.count.pagesWritten.Add(1)
		} else if errorIs(err, syscall.EEXIST) {
			t.draft.Worked(in.Pid)
		}
	default:
		err = syscall.EPERM
	}
	if err != nil {
		fs.logRefusal("create", t.draft, name, err)
	}
	return f, pageNode(id), err
}

// logRefusal keeps the words of a refusal that the caller only sees as an errno.
func (fs *FS) logRefusal(what string, d *staging.Draft, name string, err error) {
	fs.log.Debug("refused", "what", what, "staging", d.Name(), "name", name, "reason", err)
}

// createdTTL is how long the kernel may keep the attributes of a page that has
// just been made. Everything that changes them before the page is complete (the
// first write, a truncation) has the kernel forget or replace them; without it
// the kernel asks for them once more within the same open(2).
const createdTTL = time.Second

// opened gives a handle on a file that has just been made.
func (fs *FS) opened(in *fuse.CreateIn, dir nodeID, name string, n nodeID, f *os.File, out *fuse.CreateOut) error {
	h, err := fs.openHandle(&in.InHeader, n, in.Flags, 0)
	if n.kind() == kindPage {
		fs.stage.Opened(n.page())
	}
	if err != nil {
		f.Close()
		fs.unmake(in, dir, name)
		return err
	}
	if err := fs.entryOut(n, 0, &out.EntryOut); err != nil {
		f.Close()
		fs.dropHandle(h)
		return err
	}
	if n.kind() != kindPage {
		h.file.set(f)
		out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_DIRECT_IO
		return nil
	}
	out.SetAttrTimeout(createdTTL)
	if err := fs.startIO(h, false, &out.OpenOut); err != nil {
		f.Close()
		return err
	}
	if h.how(howPassthrough) {
		f.Close()
	} else {
		h.file.set(f)
	}
	return nil
}

// unmake takes away what a refused create has made. The kernel lets nobody else at
// the name until the create is answered.
func (fs *FS) unmake(in *fuse.CreateIn, dir nodeID, name string) {
	h := in.InHeader
	h.Unique = 0 // what is recorded of this request is that it made the file
	if err := fs.unlink(&h, dir, name); err != nil && !errorIs(err, syscall.ENOENT) {
		fs.log.Debug("what a refused create had made is left", "name", name, "error", err)
	}
}

// Mkdir implements fuse.RawFileSystem.
func (fs *FS) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	dir := nodeID(in.NodeId)
	if !fs.doneBefore(&in.InHeader) {
		if err := fs.mkdir(in, dir, name); err != nil {
			return status(fs.log, err)
		}
	}
	n, ttl, err := fs.lookup(dir, name)
	if err == nil {
		err = fs.entryOut(n, ttl, out)
	}
	return status(fs.log, err)
}

func (fs *FS) mkdir(in *fuse.MkdirIn, dir nodeID, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	op, _ := opOf(&in.InHeader)
	a := fs.inherit(dir, index.Attr{Mode: in.Mode & 0o7777, UID: in.Uid, GID: in.Gid, Mtime: fs.now().UnixNano()}, true)
	switch dir.kind() {
	case kindFixed:
		if dir != nodeRoot || name[0] == '.' {
			return syscall.EPERM
		}
		_, err := fs.idx.CreateModel(name, a, op)
		if err == nil {
			fs.root.Touch(a.Mtime)
		}
		return err
	case kindModel:
		m, err := fs.model(dir)
		if err != nil {
			return err
		}
		if !isIdentityName(name) {
			return syscall.EPERM
		}
		_, err = fs.idx.CreateIdentity(m, name, nil, a, op)
		return err
	case kindStagingDir:
		i, err := fs.identity(dir)
		if err != nil {
			return err
		}
		_, err = fs.stage.Create(i, name, a, op)
		return err
	case kindGeneration, kindRank:
		t, err := fs.treeOf(dir)
		if err != nil {
			return err
		}
		if t.draft == nil {
			return syscall.EPERM
		}
		_, err = t.draft.Mkdir(dir.place(), name, a, func(p staging.Place) uint64 { return placeNode(t.draft.ID, p).sub() }, op)
		return err
	}
	return syscall.EPERM
}

// isIdentityName: 40 hex digits, as the digest is written.
func isIdentityName(name string) bool {
	return len(name) == 40 && strings.Trim(name, "0123456789abcdef") == ""
}

// Mknod implements fuse.RawFileSystem: the tree has no place for special files,
// and files are made by open.
func (fs *FS) Mknod(<-chan struct{}, *fuse.MknodIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EPERM
}

// Symlink implements fuse.RawFileSystem.
func (fs *FS) Symlink(<-chan struct{}, *fuse.InHeader, string, string, *fuse.EntryOut) fuse.Status {
	return fuse.EPERM
}

// Tmpfile implements fuse.RawFileSystem.
func (fs *FS) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status {
	return fuse.Status(syscall.EOPNOTSUPP)
}

// Link implements fuse.RawFileSystem: a published page, or a complete staged
// one, gets its position in a staging without a copy.
func (fs *FS) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	dir, page := nodeID(in.NodeId), nodeID(in.Oldnodeid)
	if !fs.doneBefore(&in.InHeader) {
		if page.kind() != kindPage || dir.kind() != kindGroup && dir.kind() != kindProvisional {
			return fuse.EPERM
		}
		t, err := fs.treeOf(dir)
		if err != nil {
			return status(fs.log, err)
		}
		if t.draft == nil {
			return fuse.EPERM
		}
		op, _ := opOf(&in.InHeader)
		if err := t.draft.LinkPage(dir.place(), name, page.page(), op); err != nil {
			fs.logRefusal("link", t.draft, name, err)
			return status(fs.log, err)
		}
	}
	return status(fs.log, fs.entryOut(page, 0, out))
}
