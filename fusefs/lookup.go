package fusefs

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// Lookup implements fuse.RawFileSystem.
func (fs *FS) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir := nodeID(h.NodeId)
	n, ttl, err := fs.lookup(dir, name)
	if dir.kind() == kindStagingDir && errorIs(err, syscall.ENOENT) {
		if t := fs.tombs.find(dir.object(), name, h.Pid, fs.now()); t != nil {
			n, ttl, err = makeNode(kindTombstone, t.gen), 0, nil
		}
	}
	if err == nil {
		err = fs.entryOut(n, ttl, out)
	}
	return status(fs.log, err)
}

// entryOut fills the answer for a name that leads to the node; ttl is how long
// the kernel may believe that it does. Generations and stagings go by themselves: a
// kernel that can't be told so asks for them each time.
func (fs *FS) entryOut(n nodeID, ttl time.Duration, out *fuse.EntryOut) error {
	if n.kind() == kindGeneration && !fs.notify.epochs {
		ttl = 0
	}
	attrTTL, err := fs.getAttr(n, &out.Attr)
	if err != nil {
		return err
	}
	out.NodeId = uint64(n)
	out.SetEntryTimeout(ttl)
	out.SetAttrTimeout(attrTTL)
	return nil
}

// maxName is the longest name, bytes. The kernel lets longer ones through.
const maxName = 255

func checkName(name string) error {
	if len(name) > maxName {
		return syscall.ENAMETOOLONG
	}
	return nil
}

// lookup finds a name in a directory. ENOENT.
func (fs *FS) lookup(dir nodeID, name string) (nodeID, time.Duration, error) {
	if err := checkName(name); err != nil {
		return 0, 0, err
	}
	switch dir.kind() {
	case kindFixed:
		return fs.lookupFixed(dir, name)
	case kindModel:
		return fs.lookupInModel(dir, name)
	case kindIdentity:
		return fs.lookupInIdentity(dir, name)
	case kindTombstone:
		return 0, 0, syscall.ENOENT
	case kindStagingDir:
		if d, ok := fs.stage.ByName(dir.object(), name); ok {
			return placeNode(d.ID, staging.Place{}), forever, nil
		}
		return 0, 0, syscall.ENOENT
	}
	return fs.lookupInTree(dir, name)
}

func (fs *FS) lookupFixed(dir nodeID, name string) (nodeID, time.Duration, error) {
	if dir == nodeControl {
		for n, f := range controlFiles {
			if f.name == name {
				return n, forever, nil
			}
		}
		if name == commandName {
			return nodeCommand, forever, nil
		}
		return 0, 0, syscall.ENOENT
	}
	if name == ".ckptfs" {
		return nodeControl, forever, nil
	}
	if m := fs.idx.Model(name); m != nil {
		return makeNode(kindModel, m.ID), forever, nil
	}
	return 0, 0, syscall.ENOENT
}

func (fs *FS) lookupInModel(dir nodeID, name string) (nodeID, time.Duration, error) {
	m, err := fs.model(dir)
	if err != nil {
		return 0, 0, err
	}
	if name == ".identify" {
		return makeNode(kindIdentify, m.ID), forever, nil
	}
	if i := m.Identity(name); i != nil {
		return makeNode(kindIdentity, i.ID), forever, nil
	}
	return 0, 0, syscall.ENOENT
}

func (fs *FS) lookupInIdentity(dir nodeID, name string) (nodeID, time.Duration, error) {
	i, err := fs.identity(dir)
	if err != nil {
		return 0, 0, err
	}
	switch name {
	case ".find":
		return makeNode(kindFind, i.ID), forever, nil
	case ".staging":
		return makeNode(kindStagingDir, i.ID), forever, nil
	case "identity.json":
		if !fs.hasDocument(i) {
			return 0, 0, syscall.ENOENT
		}
		return makeNode(kindDocument, i.ID), 0, nil
	}
	if name[0] == '.' && name == fs.pendingDocument(i) {
		return makeNode(kindDocument, i.ID), 0, nil
	}
	if g := i.Generation(name); g != nil {
		return placeNode(g.ID, staging.Place{}), forever, nil
	}
	if d, ok := fs.stage.Ghost(i.ID, name); ok {
		return placeNode(d.ID, staging.Place{}), 0, nil
	}
	return 0, 0, syscall.ENOENT
}

func (fs *FS) lookupInTree(dir nodeID, name string) (nodeID, time.Duration, error) {
	if !dir.isDir() {
		return 0, 0, syscall.ENOTDIR
	}
	t, err := fs.treeOf(dir)
	if err != nil {
		return 0, 0, err
	}
	if t.gen != nil {
		return fs.lookupInGeneration(t.gen, dir.place(), name)
	}
	e, err := t.draft.Lookup(dir.place(), name)
	if err != nil {
		return 0, 0, err
	}
	return draftEntryNode(t.draft.ID, e), entryTTL(e), nil
}

// entryTTL: what a draft's name leads to changes only in ways that the kernel
// sees, except for pages (publication keeps one of two copies), provisional
// directories (the manifest numbers them) and made files.
func entryTTL(e staging.Entry) time.Duration {
	if e.Type == staging.EntryDir && e.Place.Level != staging.LevelProvisional {
		return forever
	}
	return 0
}

// draftEntryNode is the node of an entry of a draft.
func draftEntryNode(id index.ObjectID, e staging.Entry) nodeID {
	switch e.Type {
	case staging.EntryManifest:
		return genNode(kindManifest, id, staging.Place{})
	case staging.EntryTokens:
		return genNode(kindTokens, id, staging.Place{})
	case staging.EntryPlan:
		return genNode(kindPlan, id, staging.Place{})
	case staging.EntryError:
		return genNode(kindError, id, staging.Place{})
	case staging.EntryPage, staging.EntryScratch:
		return pageNode(e.Page.ID)
	}
	return placeNode(id, e.Place)
}

// fileType is the entry type of a file node of a staging.
func fileType(k nodeKind) staging.EntryType {
	switch k {
	case kindTokens:
		return staging.EntryTokens
	case kindPlan:
		return staging.EntryPlan
	case kindError:
		return staging.EntryError
	}
	return staging.EntryManifest
}

// lookupInGeneration finds a name in a published generation's directory.
func (fs *FS) lookupInGeneration(g *index.Generation, p staging.Place, name string) (nodeID, time.Duration, error) {
	c, err := fs.idx.Contents(g)
	if err != nil {
		return 0, 0, err
	}
	l := c.Layout
	switch p.Level {
	case staging.LevelRoot:
		if name == "manifest.json" {
			return genNode(kindManifest, g.ID, p), forever, nil
		}
		if r, ok := staging.ParseRank(name); ok && r < l.WorldSize {
			return placeNode(g.ID, staging.Place{Level: staging.LevelRank, Rank: r}), forever, nil
		}
	case staging.LevelRank:
		if gi, ok := l.GroupIndex(name); ok {
			return placeNode(g.ID, staging.Place{Level: staging.LevelGroup, Rank: p.Rank, Group: gi}), forever, nil
		}
	case staging.LevelGroup:
		pos, ok := index.ParsePosition(name)
		if !ok || p.Group >= len(l.Groups) || p.Rank >= l.WorldSize {
			break
		}
		if i, ok := l.Groups[p.Group].PositionIndex(pos); ok {
			return pageNode(c.Pages[l.Slot(p.Rank, p.Group, i)]), forever, nil
		}
	}
	return 0, 0, syscall.ENOENT
}
