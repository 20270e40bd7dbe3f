package fusefs

import (
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
)

// forever is how long the kernel may keep what changes only by its own doing or
// with a notification from here.
const forever = 365 * 24 * time.Hour

const (
	dirMode  = syscall.S_IFDIR
	fileMode = syscall.S_IFREG
)

// getAttr computes a node's attributes and how long the kernel may keep them.
// ENOENT if the node is gone.
func (fs *FS) getAttr(n nodeID, out *fuse.Attr) (time.Duration, error) {
	*out = fuse.Attr{Ino: uint64(n), Nlink: 1, Blksize: 4096}
	switch n.kind() {
	case kindFixed, kindCommand:
		return fs.fixedAttr(n, out)
	case kindModel:
		m, err := fs.model(n)
		if err != nil {
			return 0, err
		}
		setDir(out, m.Attr(), 2)
	case kindIdentify:
		m, err := fs.model(makeNode(kindModel, n.object()))
		if err != nil {
			return 0, err
		}
		setFile(out, withMode(m.Attr(), 0o666), 0)
	case kindIdentity, kindStagingDir, kindFind, kindDocument:
		return fs.identityAttr(n, out)
	case kindPage:
		return fs.pageAttr(n, out)
	case kindTombstone:
		t := fs.tombs.of(n.object())
		if t == nil {
			return 0, syscall.ENOENT
		}
		setDir(out, t.attr, 2)
		return 0, nil
	default:
		return fs.treeAttr(n, out)
	}
	return forever, nil
}

func withMode(a index.Attr, mode uint32) index.Attr {
	a.Mode = mode
	return a
}

func setTimes(out *fuse.Attr, ns int64) {
	sec, nsec := uint64(ns/1e9), uint32(ns%1e9)
	out.Atime, out.Mtime, out.Ctime = sec, sec, sec
	out.Atimensec, out.Mtimensec, out.Ctimensec = nsec, nsec, nsec
}

func setDir(out *fuse.Attr, a index.Attr, links int) {
	out.Mode = dirMode | a.Mode&0o7777
	out.Owner = fuse.Owner{Uid: a.UID, Gid: a.GID}
	out.Nlink = uint32(links)
	setTimes(out, a.Mtime)
}

func setFile(out *fuse.Attr, a index.Attr, bytes int64) {
	out.Mode = fileMode | a.Mode&0o7777
	out.Owner = fuse.Owner{Uid: a.UID, Gid: a.GID}
	out.Size = uint64(bytes)
	out.Blocks = uint64(bytes+4095) / 4096 * 8
	setTimes(out, a.Mtime)
}

func (fs *FS) fixedAttr(n nodeID, out *fuse.Attr) (time.Duration, error) {
	owner := fuse.Owner{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
	setTimes(out, fs.started.UnixNano())
	out.Owner = owner
	switch n {
	case nodeRoot:
		setDir(out, fs.root.Attr(), 2)
		return forever, nil
	case nodeControl:
		out.Mode, out.Nlink = dirMode|0o500, 2
		return forever, nil
	case nodeCommand:
		out.Mode = fileMode | 0o600
		return forever, nil
	}
	if _, ok := controlFiles[n]; !ok {
		return 0, syscall.ENOENT
	}
	out.Mode = fileMode | 0o400
	return 0, nil
}

func (fs *FS) identityAttr(n nodeID, out *fuse.Attr) (time.Duration, error) {
	i, err := fs.identity(n)
	if err != nil {
		return 0, err
	}
	a := i.Attr()
	switch n.kind() {
	case kindIdentity, kindStagingDir:
		setDir(out, a, 2)
	case kindFind:
		setFile(out, withMode(a, 0o666), 0)
	case kindDocument:
		if doc := i.Document(); doc != nil {
			setFile(out, fs.docAttr(i), int64(len(doc.Doc)))
			return forever, nil
		}
		st, err := os.Stat(fs.docPath(i.ID))
		if err != nil {
			return 0, syscall.ENOENT
		}
		setFile(out, withMode(a, a.Mode&0o666|0o600), st.Size())
		return 0, nil
	}
	return forever, nil
}

// pageAttr tells of a page: published, staged, or open though nothing names it
// any more.
func (fs *FS) pageAttr(n nodeID, out *fuse.Attr) (time.Duration, error) {
	id := n.page()
	_, staged := fs.stage.StagedPage(id)
	if !staged {
		p, err := fs.idx.Page(id)
		if err == nil {
			setFile(out, withMode(p.Attr(), 0o444), p.Bytes)
			// A name in a staging is a name too.
			out.Nlink = uint32(int(p.Links()) + fs.live.Refs(id))
			return forever, nil
		}
		if !errorIs(err, syscall.ENOENT) {
			return 0, err
		}
		if p := fs.live.Row(id); p != nil { // open, with or without a copy in RAM
			setFile(out, withMode(p.Attr(), 0o444), p.Bytes)
			out.Nlink = 0
			return 0, nil
		}
	}
	var st syscall.Stat_t
	if err := syscall.Stat(fs.ram.Path(id), &st); err != nil {
		return 0, err
	}
	setFile(out, index.Attr{Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano()}, st.Size)
	out.Blocks = uint64(st.Blocks)
	out.Nlink = uint32(fs.live.Refs(id))
	return 0, nil
}

// treeAttr tells of a generation or a staging, and of what is in it and no page.
func (fs *FS) treeAttr(n nodeID, out *fuse.Attr) (time.Duration, error) {
	t, err := fs.treeOf(n)
	if err != nil {
		return 0, err
	}
	if t.draft != nil {
		return fs.draftAttr(n, t, out)
	}
	a := t.gen.Attr()
	if n.sub() != 0 { // what is below is in the generation's contents, which a listing of generations must not read
		if own, ok := fs.idx.SubAttr(t.gen, n.sub()); ok {
			a = own
		}
	}
	switch n.kind() {
	case kindManifest:
		setFile(out, withMode(a, 0o444), t.gen.ManifestBytes)
	case kindGeneration, kindRank, kindGroup:
		setDir(out, a, 2)
	default:
		return 0, syscall.ENOENT
	}
	return forever, nil
}

func (fs *FS) draftAttr(n nodeID, t tree, out *fuse.Attr) (time.Duration, error) {
	d := t.draft
	a := d.Attr(n.sub())
	if n.isDir() {
		if !d.Exists(n.place()) {
			return 0, syscall.ENOENT
		}
		setDir(out, a, 2)
		return draftDirAttrTTL(d, n), nil
	}
	switch n.kind() {
	case kindManifest, kindTokens:
		st, err := os.Stat(d.FilePath(fileType(n.kind())))
		if err != nil {
			return 0, syscall.ENOENT
		}
		if d.Ghost() {
			a.Mode = 0o444
		}
		a.Mtime = st.ModTime().UnixNano()
		setFile(out, a, st.Size())
	case kindPlan:
		b, err := d.PlanJSON()
		if err != nil {
			return 0, err
		}
		setFile(out, withMode(d.Attr(0), 0o444), int64(len(b)))
	case kindError:
		setFile(out, withMode(d.Attr(0), 0o444), int64(len(d.ErrorText())+1))
	}
	return 0, nil
}

// GetAttr implements fuse.RawFileSystem.
func (fs *FS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	ttl, err := fs.getAttr(nodeID(in.NodeId), &out.Attr)
	if errorIs(err, syscall.ENOENT) && fs.openAttr(nodeID(in.NodeId), &out.Attr) {
		return fuse.OK
	}
	if err != nil {
		return status(fs.log, err)
	}
	out.SetTimeout(ttl)
	fs.snapshotAttr(in, &out.Attr)
	return fuse.OK
}
