package fusefs

import (
	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// nodeID is the kernel's name for a node, and its inode number. It is composed
// of what the node is, never handed out from a table and never reused: whoever
// serves the mount next understands it, and nothing has to be remembered until a
// FORGET.
//
//	bit 58-62  kind
//	bit 0-57   payload: an object id; below a generation, the generation's id
//	           (36 bits), rank (10 bits) and group (12 bits)
//
// A staging's id becomes its generation's, so publication changes no node.
type nodeID uint64

type nodeKind uint8

// The order of kinds is the order of inode numbers. Tools that sort a directory
// by inode (tar, rm) must meet a generation's manifest before its ranks, and an
// identity's document after its generations.
const (
	kindFixed       nodeKind = iota // root and control files; payload is a fixedNode
	kindModel                       // model id
	kindIdentity                    // identity id
	kindIdentify                    // .identify; model id
	kindFind                        // .find; identity id
	kindStagingDir                  // .staging; identity id
	kindGeneration                  // a generation, a staging or a ghost
	kindManifest                    // its manifest.json
	kindTokens                      // a staging's tokens
	kindPlan                        // a staging's plan.json
	kindError                       // a staging's error
	kindRank                        // rank-<r>
	kindGroup                       // rank-<r>/<group>
	kindProvisional                 // a group's directory made before the manifest
	kindPage                        // page id; scratch files too
	kindDocument                    // identity.json; identity id
	kindTombstone                   // a published staging's old name; generation id
	kindCommand                     // .ckptfs/control
)

const (
	kindShift   = 58
	payloadMask = 1<<kindShift - 1
	groupBits   = 12
	rankBits    = 10
)

// fixedNode are the nodes that are there in every mount.
const (
	nodeRoot    nodeID = 1        // FUSE_ROOT_ID
	nodeControl nodeID = 2 + iota // .ckptfs
	nodeStatus
	nodeLeases
	nodeConfig
	nodeMetrics
)

// nodeCommand is .ckptfs/control, which is no made file.
const nodeCommand = nodeID(kindCommand) << kindShift

func makeNode(k nodeKind, id index.ObjectID) nodeID {
	return nodeID(k)<<kindShift | nodeID(id)&payloadMask
}

func (n nodeID) kind() nodeKind { return nodeKind(n >> kindShift & 31) }

// object is the id in the payload of a node that is not below a generation.
func (n nodeID) object() index.ObjectID { return index.ObjectID(n & payloadMask) }

func pageNode(id pages.ID) nodeID { return makeNode(kindPage, index.ObjectID(id)) }

func (n nodeID) page() pages.ID { return pages.ID(n & payloadMask) }

// genNode is the node of a generation or of something in it that is no page.
func genNode(k nodeKind, gen index.ObjectID, p staging.Place) nodeID {
	return nodeID(k)<<kindShift | nodeID(gen)<<(rankBits+groupBits) | nodeID(p.Rank)<<groupBits | nodeID(p.Group)
}

// placeNode is the node of a directory of a generation.
func placeNode(gen index.ObjectID, p staging.Place) nodeID {
	switch p.Level {
	case staging.LevelRank:
		return genNode(kindRank, gen, staging.Place{Rank: p.Rank})
	case staging.LevelGroup:
		return genNode(kindGroup, gen, p)
	case staging.LevelProvisional:
		return genNode(kindProvisional, gen, p)
	}
	return genNode(kindGeneration, gen, staging.Place{})
}

// generation is the id of the generation or staging that the node belongs to.
func (n nodeID) generation() index.ObjectID {
	return index.ObjectID(n&payloadMask) >> (rankBits + groupBits)
}

// place is the directory of a generation that the node is.
func (n nodeID) place() staging.Place {
	p := staging.Place{Rank: int(n>>groupBits) & (1<<rankBits - 1), Group: int(n) & (1<<groupBits - 1)}
	switch n.kind() {
	case kindRank:
		p.Level = staging.LevelRank
	case kindGroup:
		p.Level = staging.LevelGroup
	case kindProvisional:
		p.Level = staging.LevelProvisional
	}
	return p
}

// inGeneration reports whether the node is a generation's or a staging's, or in
// one and no page.
func (n nodeID) inGeneration() bool {
	k := n.kind()
	return k >= kindGeneration && k <= kindProvisional
}

func (n nodeID) isDir() bool {
	switch n.kind() {
	case kindFixed:
		return n == nodeRoot || n == nodeControl
	case kindModel, kindIdentity, kindStagingDir, kindGeneration, kindRank, kindGroup, kindProvisional, kindTombstone:
		return true
	}
	return false
}

// sub is the key under which attributes of what lies in a generation are kept;
// 0 is the generation itself.
func (n nodeID) sub() uint64 {
	if n.kind() == kindGeneration {
		return 0
	}
	return uint64(n.kind())<<32 | uint64(n)&(1<<(rankBits+groupBits)-1)
}
