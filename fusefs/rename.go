package fusefs

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/evict"
	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// Rename implements fuse.RawFileSystem: a staging is published, a generation is
// unpublished, a scratch file gets its position. Nothing else can be renamed.
func (fs *FS) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	if in.Flags&^unix.RENAME_NOREPLACE != 0 {
		return fuse.EINVAL
	}
	if fs.doneBefore(&in.InHeader) {
		return fuse.OK
	}
	return status(fs.log, fs.rename(in, nodeID(in.NodeId), oldName, nodeID(in.Newdir), newName))
}

func (fs *FS) rename(in *fuse.RenameIn, from nodeID, oldName string, to nodeID, newName string) error {
	if err := checkName(newName); err != nil {
		return err
	}
	switch {
	case from.kind() == kindStagingDir:
		return fs.renameStaging(in, from, oldName, to, newName)
	case from.kind() == kindIdentity && to.kind() == kindStagingDir:
		return fs.renameGeneration(in, from, oldName, to, newName)
	case from.kind() == kindIdentity && to == from && (oldName == documentName || oldName[0] == '.'):
		i, err := fs.identity(from)
		if err != nil {
			return err
		}
		op, _ := opOf(&in.InHeader)
		return fs.renameDocument(i, oldName, newName, op)
	case from.inGeneration() && from.isDir() && to.inGeneration() && to.isDir():
		return fs.renameScratch(in, from, oldName, to, newName)
	}
	if _, _, err := fs.lookup(from, oldName); err != nil {
		return err
	}
	return syscall.EPERM
}

// renameStaging publishes.
func (fs *FS) renameStaging(in *fuse.RenameIn, from nodeID, oldName string, to nodeID, newName string) error {
	d, ok := fs.stage.ByName(from.object(), oldName)
	if !ok {
		if t := fs.tombs.find(from.object(), oldName, in.Pid, fs.now()); t != nil {
			return fs.renameTombstone(t, to, newName)
		}
		return syscall.ENOENT
	}
	if to.kind() != kindIdentity {
		return syscall.EPERM
	}
	if to.object() != from.object() {
		return syscall.EXDEV
	}
	op, _ := opOf(&in.InHeader)
	began, removals := fs.now(), fs.tiers.Removals()
	fs.publishing.Add(1) // the staging ends before retention knows what it has superseded
	defer func() {
		fs.publishing.Add(-1)
		fs.tiers.AskRoom(0) // eviction may have waited for it
	}()
	g, err := d.Publish(newName, op, func(g *index.Generation) { fs.bury(d, oldName, g, in.Pid) })
	if errorIs(err, syscall.ENOENT) && fs.idx.GenerationByID(d.ID) != nil {
		return syscall.EEXIST // another rank was the first
	}
	if err != nil {
		fs.countRefused(err)
		fs.logRefusal("publish", d, newName, err)
		return err
	}
	fs.endGhost(g.Identity.ID, g.Name, g.ID)
	fs.notify.attributesOf(draftDirs(d)...)
	fs.published(g, d.Kin(), evict.Brought{Pages: d.Brought(), Removals: removals})
	fs.metrics.publish.Observe(fs.now().Sub(began).Seconds())
	return nil
}

func (fs *FS) countRefused(err error) {
	var refused *staging.Error
	if errors.As(err, &refused) && refused.Errno == syscall.EBUSY {
		fs.count.publishBusy.Add(1)
	}
}

// published tells of a new generation, and of what it superseded.
func (fs *FS) published(g *index.Generation, kin index.Kinship, brought evict.Brought) {
	fs.count.generationsPublished.Add(1)
	fs.busiest.published(g)
	if c, err := fs.idx.Contents(g); err == nil {
		fs.tiers.Published(g, c, kin, brought)
		fs.saveAfter(g, c)
	}
	fs.log.Debug("generation published", "identity", g.Identity.Name, "generation", g.Name)
	fs.boundGenerations()
}

// renameGeneration unpublishes: a generation becomes a staging.
func (fs *FS) renameGeneration(in *fuse.RenameIn, from nodeID, oldName string, to nodeID, newName string) error {
	i, err := fs.identity(from)
	if err != nil {
		return err
	}
	g := i.Generation(oldName)
	if g == nil {
		return fs.refuseRemoval(from, oldName)
	}
	if to.object() != from.object() {
		return syscall.EXDEV
	}
	if _, taken := fs.stage.ByName(i.ID, newName); taken {
		return syscall.EEXIST
	}
	op, _ := opOf(&in.InHeader)
	_, err = fs.unpublish(g, newName, false, op)
	return err
}

func (fs *FS) renameScratch(in *fuse.RenameIn, from nodeID, oldName string, to nodeID, newName string) error {
	t, err := fs.treeOf(from)
	if err != nil {
		return err
	}
	if t.draft == nil {
		if _, _, err := fs.lookup(from, oldName); err != nil {
			return err
		}
		return syscall.EPERM
	}
	if to.generation() != from.generation() {
		return syscall.EPERM
	}
	op, _ := opOf(&in.InHeader)
	noReplace := in.Flags&unix.RENAME_NOREPLACE != 0
	err = t.draft.RenameScratch(context.Background(), from.place(), oldName, to.place(), newName, noReplace, op)
	if err != nil {
		fs.logRefusal("rename", t.draft, newName, err)
	}
	return err
}
