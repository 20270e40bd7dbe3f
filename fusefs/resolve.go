package fusefs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// resend is the bit of a request id that marks one sent again after the daemon
// was replaced (FUSE_UNIQUE_RESEND).
const resend = uint64(1) << 63

// opOf is the request's id; again says that a former daemon may have carried it
// out.
func opOf(h *fuse.InHeader) (op index.Op, again bool) {
	return index.Op(h.Unique &^ resend), h.Unique&resend != 0
}

// doneBefore reports whether this very request was carried out by a former
// daemon that was killed before it could answer.
func (fs *FS) doneBefore(h *fuse.InHeader) bool {
	op, again := opOf(h)
	return again && (fs.stage.Done(op) || fs.idx.Done(op))
}

// tree is what a node below a generation belongs to: a published generation, or
// a draft (a staging or a ghost). One of both is set.
type tree struct {
	gen   *index.Generation
	draft *staging.Draft
}

// treeOf finds the generation or draft of a node. A generation first: in the
// instant of publication both are there.
func (fs *FS) treeOf(n nodeID) (tree, error) {
	id := n.generation()
	if g := fs.idx.GenerationByID(id); g != nil {
		return tree{gen: g}, nil
	}
	if d, ok := fs.stage.ByID(id); ok {
		return tree{draft: d}, nil
	}
	if g := fs.idx.GenerationByID(id); g != nil {
		return tree{gen: g}, nil
	}
	return tree{}, syscall.ENOENT
}

func (t tree) identity() *index.Identity {
	if t.gen != nil {
		return t.gen.Identity
	}
	return t.draft.Identity
}

func (fs *FS) model(n nodeID) (*index.Model, error) {
	if m := fs.idx.ModelByID(n.object()); m != nil {
		return m, nil
	}
	return nil, syscall.ENOENT
}

func (fs *FS) identity(n nodeID) (*index.Identity, error) {
	if i := fs.idx.IdentityByID(n.object()); i != nil {
		return i, nil
	}
	return nil, syscall.ENOENT
}
