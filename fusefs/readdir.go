package fusefs

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// dirent is one entry of a listing. Its cookie is a key of the entry, not a
// position, so a stream goes on at the right place after entries have come or
// gone, and in another process.
type dirent struct {
	name   string
	node   nodeID
	ttl    time.Duration
	cookie uint64
}

// The stream's own offsets: "." and ".." come first, entries follow.
const (
	offDot    = 1
	offDotDot = 2
	offFirst  = 2 // an entry's offset is its cookie plus this
)

// listBatch bounds what one step of a listing takes from the store.
const listBatch = 512

// lastCookie is for an entry that comes after all others.
const lastCookie = 1<<62 - 1

// list gives at most listBatch entries whose cookies are greater than after.
func (fs *FS) list(dir nodeID, after uint64) ([]dirent, error) {
	switch dir.kind() {
	case kindFixed:
		return fs.listFixed(dir, after)
	case kindModel:
		m, err := fs.model(dir)
		if err != nil {
			return nil, err
		}
		var es []dirent
		for _, i := range m.Identities(index.ObjectID(after), listBatch) {
			es = append(es, dirent{i.Name, makeNode(kindIdentity, i.ID), forever, uint64(i.ID)})
		}
		return es, nil
	case kindIdentity:
		return fs.listIdentity(dir, after)
	case kindTombstone:
		return nil, nil
	case kindStagingDir:
		var es []dirent
		for _, d := range fs.stage.List(dir.object(), index.ObjectID(after)) {
			es = append(es, dirent{d.Name(), placeNode(d.ID, staging.Place{}), forever, uint64(d.ID)})
		}
		return es, nil
	}
	return fs.listTree(dir, after)
}

func (fs *FS) listFixed(dir nodeID, after uint64) ([]dirent, error) {
	var es []dirent
	if dir == nodeControl {
		for n := nodeControl + 1; ; n++ {
			f, ok := controlFiles[n]
			if !ok {
				if after < lastCookie {
					es = append(es, dirent{commandName, nodeCommand, forever, lastCookie})
				}
				return es, nil
			}
			if uint64(n) > after {
				es = append(es, dirent{f.name, n, forever, uint64(n)})
			}
		}
	}
	for _, m := range fs.idx.Models(index.ObjectID(after), listBatch) {
		es = append(es, dirent{m.Name, makeNode(kindModel, m.ID), forever, uint64(m.ID)})
	}
	return es, nil
}

func (fs *FS) listIdentity(dir nodeID, after uint64) ([]dirent, error) {
	i, err := fs.identity(dir)
	if err != nil {
		return nil, err
	}
	var es []dirent
	gs := i.Generations(index.ObjectID(after), listBatch)
	for _, g := range gs {
		es = append(es, dirent{g.Name, placeNode(g.ID, staging.Place{}), forever, uint64(g.ID)})
	}
	if len(gs) < listBatch && after < lastCookie && fs.hasDocument(i) {
		es = append(es, dirent{"identity.json", makeNode(kindDocument, i.ID), 0, lastCookie})
	}
	return es, nil
}

func (fs *FS) listTree(dir nodeID, after uint64) ([]dirent, error) {
	t, err := fs.treeOf(dir)
	if err != nil {
		return nil, err
	}
	if t.gen != nil {
		return fs.listGeneration(t.gen, dir.place(), after)
	}
	entries, err := t.draft.List(dir.place(), after, listBatch)
	if err != nil {
		return nil, err
	}
	es := make([]dirent, len(entries))
	for i, e := range entries {
		es[i] = dirent{e.Name, draftEntryNode(t.draft.ID, e), entryTTL(e), e.Cookie}
	}
	return es, nil
}

// listGeneration lists a published generation with the cookies that its staging
// had, so that a stream goes on over publication.
func (fs *FS) listGeneration(g *index.Generation, p staging.Place, after uint64) ([]dirent, error) {
	c, err := fs.idx.Contents(g)
	if err != nil {
		return nil, err
	}
	entries, err := staging.ListLayout(c.Layout, p, after, listBatch)
	if err != nil {
		return nil, err
	}
	es := make([]dirent, len(entries))
	for i, e := range entries {
		if e.Type == staging.EntryPage {
			e.Page.ID = c.Pages[e.Slot]
		}
		es[i] = dirent{e.Name, draftEntryNode(g.ID, e), forever, e.Cookie}
	}
	return es, nil
}

// readDir fills a listing; add returns false when the buffer is full.
func (fs *FS) readDir(dir nodeID, off uint64, add func(e dirent, off uint64) bool) error {
	if off < offDot && !add(dirent{name: ".", node: dir}, offDot) {
		return nil
	}
	if off < offDotDot && !add(dirent{name: "..", node: dir}, offDotDot) {
		return nil
	}
	after := uint64(0)
	if off > offFirst {
		after = off - offFirst
	}
	for {
		es, err := fs.list(dir, after)
		if err != nil {
			return err
		}
		for _, e := range es {
			if !add(e, e.cookie+offFirst) {
				return nil
			}
			after = e.cookie
		}
		if len(es) < listBatch {
			return nil
		}
	}
}

func (e dirent) mode() uint32 {
	if e.node.isDir() {
		return syscall.S_IFDIR
	}
	return syscall.S_IFREG
}

// ReadDir implements fuse.RawFileSystem.
func (fs *FS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	err := fs.readDir(nodeID(in.NodeId), in.Offset, func(e dirent, off uint64) bool {
		return out.AddDirEntry(fuse.DirEntry{Name: e.name, Ino: uint64(e.node), Mode: e.mode(), Off: off})
	})
	return fs.listed(err)
}

// ReadDirPlus implements fuse.RawFileSystem.
func (fs *FS) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	err := fs.readDir(nodeID(in.NodeId), in.Offset, func(e dirent, off uint64) bool {
		entry := out.AddDirLookupEntry(fuse.DirEntry{Name: e.name, Ino: uint64(e.node), Mode: e.mode(), Off: off})
		if entry == nil {
			return false
		}
		if e.name != "." && e.name != ".." {
			if err := fs.entryOut(e.node, e.ttl, entry); err != nil {
				*entry = fuse.EntryOut{} // gone meanwhile: a name without a node
			}
		}
		return true
	})
	return fs.listed(err)
}

// listed: a directory that was removed while it was open is empty.
func (fs *FS) listed(err error) fuse.Status {
	if errno, ok := errnoOf(err); ok && errno == syscall.ENOENT {
		return fuse.OK
	}
	return status(fs.log, err)
}

// OpenDir implements fuse.RawFileSystem. An open directory of a generation or of
// a rank is a lease on every page below it.
func (fs *FS) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	h, err := fs.openHandle(&in.InHeader, nodeID(in.NodeId), in.Flags, 0)
	if err != nil {
		return status(fs.log, err)
	}
	out.Fh = h.number()
	return fuse.OK
}

// ReleaseDir implements fuse.RawFileSystem.
func (fs *FS) ReleaseDir(in *fuse.ReleaseIn) { fs.closeHandle(in.Fh) }

// FsyncDir implements fuse.RawFileSystem.
func (fs *FS) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return status(fs.log, fs.saveNode(nodeID(in.NodeId)))
}
