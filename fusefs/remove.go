package fusefs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// Why generations are retired on request; index.Reason says how they are read.
const (
	reasonDeleted     index.Reason = "it was deleted"
	reasonUnpublished index.Reason = "it was moved to .staging"
	reasonLimit       index.Reason = "it was the least recently used beyond --max-generations"
)

// Unlink implements fuse.RawFileSystem. The first unlink in a published
// generation retires it.
func (fs *FS) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	if fs.doneBefore(h) {
		return fuse.OK
	}
	_, again := opOf(h)
	dir := nodeID(h.NodeId)
	err := fs.unlink(h, dir, name)
	if again && dir.kind() == kindIdentity && errorIs(err, syscall.ENOENT) {
		return fuse.OK // a document that is being written leaves no record behind
	}
	return status(fs.log, err)
}

func (fs *FS) unlink(h *fuse.InHeader, dir nodeID, name string) error {
	op, _ := opOf(h)
	if dir.kind() == kindIdentity {
		return fs.unlinkDocument(dir, name, op)
	}
	if !dir.inGeneration() {
		return syscall.EPERM
	}
	d, err := fs.draftToRemoveFrom(dir, name)
	if err != nil {
		return err
	}
	e, err := d.Lookup(dir.place(), name)
	if err != nil {
		return err
	}
	switch e.Type {
	case staging.EntryDir:
		return syscall.EISDIR
	case staging.EntryManifest, staging.EntryTokens:
		return d.RemoveFile(e.Type, op)
	case staging.EntryPlan, staging.EntryError:
		return d.Hide(e.Type, op)
	}
	return d.Unlink(dir.place(), name, op)
}

// draftToRemoveFrom is the draft that a name is to be removed from. A published
// generation is retired first, as a whole, and becomes a ghost: its names stay
// until they are removed, but no lookup and no listing offers it.
func (fs *FS) draftToRemoveFrom(dir nodeID, name string) (*staging.Draft, error) {
	t, err := fs.treeOf(dir)
	if err != nil || t.draft != nil {
		return t.draft, err
	}
	if _, _, err := fs.lookupInGeneration(t.gen, dir.place(), name); err != nil {
		return nil, err
	}
	d, err := fs.unpublish(t.gen, t.gen.Name, true, 0)
	if errorIs(err, syscall.ENOENT) || errorIs(err, syscall.EEXIST) {
		// Another process retired it in this instant.
		if d, ok := fs.stage.ByID(t.gen.ID); ok {
			return d, nil
		}
	}
	return d, err
}

func (fs *FS) unpublish(g *index.Generation, name string, ghost bool, op index.Op) (*staging.Draft, error) {
	fs.unpublishing.Lock()
	defer fs.unpublishing.Unlock()
	if d, ok := fs.stage.ByID(g.ID); ok && ghost {
		return d, nil
	}
	if fs.idx.GenerationByID(g.ID) == nil {
		return nil, syscall.ENOENT
	}
	reason := reasonDeleted
	if !ghost {
		reason = reasonUnpublished
	}
	if ghost {
		fs.endGhost(g.Identity.ID, name, g.ID) // publication does it; the daemon may have been killed between
	}
	d, err := fs.stage.Unpublish(g, name, ghost, fs.idx.SubAttrs(g), reason, op)
	if err == nil {
		fs.count.generationsDeleted.Add(1)
		fs.log.Info("generation retired", "reason", string(reason), "identity", g.Identity.Name, "generation", g.Name)
	}
	return d, err
}

// endGhost ends what is left of a former generation of the same name as a new one,
// id. The kernel took its directory for replaced when the new one got the name, so
// whoever was removing it comes to nothing any more, and with two of one name the
// new one could not be removed.
func (fs *FS) endGhost(identity index.ObjectID, name string, id index.ObjectID) {
	if d, ok := fs.stage.Ghost(identity, name); ok && d.ID != id {
		_ = d.Discard() // nobody else's: it may have been ended meanwhile
	}
}

func (fs *FS) unlinkDocument(dir nodeID, name string, op index.Op) error {
	i, err := fs.identity(dir)
	if err != nil {
		return err
	}
	switch {
	case name == fs.pendingDocument(i):
		return fs.dropPending(i)
	case name != documentName:
		if _, _, err := fs.lookupInIdentity(dir, name); err != nil {
			return err
		}
		return syscall.EPERM
	case i.Document() == nil:
		return syscall.ENOENT
	case len(i.Generations(0, 1)) > 0:
		// Without it nothing below could be read or found any more.
		return syscall.EBUSY
	}
	return fs.idx.RemoveDocument(i, op)
}

// Rmdir implements fuse.RawFileSystem.
func (fs *FS) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	if fs.doneBefore(h) {
		return fuse.OK
	}
	_, again := opOf(h)
	err := fs.rmdir(h, nodeID(h.NodeId), name)
	if again && errorIs(err, syscall.ENOENT) {
		return fuse.OK // what ends with its directory leaves no record behind
	}
	return status(fs.log, err)
}

func (fs *FS) rmdir(h *fuse.InHeader, dir nodeID, name string) error {
	op, _ := opOf(h)
	switch dir.kind() {
	case kindFixed:
		m := fs.idx.Model(name)
		if dir != nodeRoot || m == nil {
			return fs.refuseRemoval(dir, name)
		}
		err := fs.idx.RemoveModel(m, op)
		if err == nil {
			fs.root.Touch(fs.now().UnixNano())
		}
		return err
	case kindModel:
		m, err := fs.model(dir)
		if err != nil {
			return err
		}
		i := m.Identity(name)
		if i == nil {
			return fs.refuseRemoval(dir, name)
		}
		return fs.removeIdentity(i, op)
	case kindIdentity:
		return fs.rmdirGeneration(dir, name)
	case kindStagingDir:
		if d, ok := fs.stage.ByName(dir.object(), name); ok {
			return d.Remove()
		}
		if t := fs.tombs.find(dir.object(), name, h.Pid, fs.now()); t != nil {
			fs.removeTombstone(t)
			return nil
		}
		return syscall.ENOENT
	}
	if !dir.inGeneration() {
		return syscall.EPERM
	}
	t, err := fs.treeOf(dir)
	if err != nil {
		return err
	}
	if t.draft == nil {
		// What a generation has is never empty.
		if _, _, err := fs.lookupInGeneration(t.gen, dir.place(), name); err != nil {
			return err
		}
		return fs.rmdirInGeneration(dir, name, op)
	}
	return t.draft.Rmdir(dir.place(), name, op)
}

// rmdirInGeneration: a page group without positions is an empty directory.
func (fs *FS) rmdirInGeneration(dir nodeID, name string, op index.Op) error {
	n, _, err := fs.lookup(dir, name)
	if err != nil {
		return err
	}
	if !n.isDir() {
		return syscall.ENOTDIR
	}
	left, err := fs.list(n, 0)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return syscall.ENOTEMPTY
	}
	d, err := fs.draftToRemoveFrom(dir, name)
	if err != nil {
		return err
	}
	return d.Rmdir(dir.place(), name, op)
}

// refuseRemoval tells a name that can't be removed from one that is not there.
func (fs *FS) refuseRemoval(dir nodeID, name string) error {
	if _, _, err := fs.lookup(dir, name); err != nil {
		return err
	}
	return syscall.EPERM
}

func (fs *FS) rmdirGeneration(dir nodeID, name string) error {
	i, err := fs.identity(dir)
	if err != nil {
		return err
	}
	if i.Generation(name) != nil {
		return syscall.ENOTEMPTY
	}
	if d, ok := fs.stage.Ghost(i.ID, name); ok {
		return d.Remove()
	}
	return fs.refuseRemoval(dir, name)
}

// removeIdentity ends an identity that shows nothing any more. Stagings that
// are open in it end with it, as their owner's rm -r asked.
func (fs *FS) removeIdentity(i *index.Identity, op index.Op) error {
	if fs.hasDocument(i) || len(i.Generations(0, 1)) > 0 {
		return syscall.ENOTEMPTY
	}
	for _, d := range fs.stage.OfIdentity(i.ID) {
		parent, name := fs.draftEntry(d)
		if err := d.Discard(); err == nil {
			fs.notify.entry(parent, name)
		}
	}
	if err := fs.idx.RemoveIdentity(i, op); err != nil {
		return err
	}
	_ = fs.dropPending(i) // there may be none
	_ = fs.idx.SetModelAttr(i.Model, func(a index.Attr) index.Attr {
		a.Mtime = fs.now().UnixNano()
		return a
	}) // of no consequence beyond an mtime
	return nil
}
