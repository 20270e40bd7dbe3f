package fusefs

import (
	"path"
	"slices"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// Paths are for people: relative to the mount, as an operator would write them.

// noPath stands for what has no name any more.
const noPath = "(deleted)"

func identityPath(i *index.Identity) string { return path.Join(i.Model.Name, i.Name) }

func generationPath(g *index.Generation) string { return path.Join(identityPath(g.Identity), g.Name) }

func draftPath(d *staging.Draft) string {
	if d.Ghost() {
		return path.Join(identityPath(d.Identity), d.Name())
	}
	return path.Join(identityPath(d.Identity), ".staging", d.Name())
}

// placePath is a directory of a generation or of a staging.
func (fs *FS) placePath(n nodeID) string {
	t, err := fs.treeOf(n)
	switch {
	case err != nil:
		return noPath
	case t.draft != nil:
		return path.Join(draftPath(t.draft), t.draft.PathOf(n.place()))
	}
	p := n.place()
	if p.Level == staging.LevelRoot {
		return generationPath(t.gen)
	}
	dir := path.Join(generationPath(t.gen), staging.RankName(p.Rank))
	if c, err := fs.idx.Contents(t.gen); err == nil && p.Level == staging.LevelGroup && p.Group < len(c.Layout.Groups) {
		dir = path.Join(dir, c.Layout.Groups[p.Group].Name)
	}
	return dir
}

// pagePath is one of the names of a page: in the generation that was published
// last of those that have it, or in the staging that makes it.
func (fs *FS) pagePath(id pages.ID) string {
	if d, ok := fs.stage.Maker(id); ok {
		return path.Join(draftPath(d), d.PathOfPage(id))
	}
	found := noPath
	_ = fs.idx.EachLinking(id, func(g *index.Generation) bool {
		c, err := fs.idx.Contents(g)
		if err != nil {
			return true // retired in this instant
		}
		found = path.Join(generationPath(g), staging.SlotPath(c.Layout, slices.Index(c.Pages, id)))
		return false
	})
	return found
}
