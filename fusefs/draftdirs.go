package fusefs

import (
	"time"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// draftDirTTL is how long the kernel may keep the attributes of a staging's
// directories. Without it every component of every page's path costs a round
// trip (default_permissions asks for the mode each time). What may be late by so
// much is a directory's mtime while its staging is written; modes and owners are
// told at once, and so is everything at publication.
const draftDirTTL = time.Second

// maxDraftDirs bounds the directories that are told of a change. A staging with
// more has none of them kept.
const maxDraftDirs = 4096

func manyDirs(l *index.Layout) bool { return l.WorldSize*(1+len(l.Groups)) > maxDraftDirs }

// draftDirAttrTTL is draftDirTTL for a staging whose directories are known.
func draftDirAttrTTL(d *staging.Draft, n nodeID) time.Duration {
	if l := d.Layout(); l == nil || d.Ghost() || n.kind() == kindProvisional || manyDirs(l) {
		return 0
	}
	return draftDirTTL
}

// draftDirs lists the directories of a staging whose attributes the kernel may
// have kept.
func draftDirs(d *staging.Draft) []nodeID {
	l := d.Layout()
	if l == nil || manyDirs(l) {
		return nil
	}
	return append(treeDirs(d.ID, l), placeNode(d.ID, staging.Place{}))
}

// treeDirs lists the directories of ranks and groups. Their attributes are those
// of the generation, but for what has been set for one of them.
func treeDirs(id index.ObjectID, l *index.Layout) []nodeID {
	nodes := make([]nodeID, 0, l.WorldSize*(1+len(l.Groups))+1)
	for r := range l.WorldSize {
		nodes = append(nodes, placeNode(id, staging.Place{Level: staging.LevelRank, Rank: r}))
		for g := range l.Groups {
			nodes = append(nodes, placeNode(id, staging.Place{Level: staging.LevelGroup, Rank: r, Group: g}))
		}
	}
	return nodes
}
