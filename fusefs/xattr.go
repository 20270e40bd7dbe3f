package fusefs

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
)

// attrPrefix begins the names of the extended attributes that there are. They
// work by name and are never listed: cp -a and rsync -X, which copy what is
// listed, have nothing to copy and nothing to complain of.
const attrPrefix = "user.ckptfs."

// GetXAttr implements fuse.RawFileSystem. ENODATA for what is not there,
// EOPNOTSUPP for what never is: there are no access control lists and no labels.
// ls -l asks for three of them for each directory that it shows, and no further
// once it has been told so.
func (fs *FS) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	name, ours := strings.CutPrefix(attr, attrPrefix)
	switch {
	case strings.HasPrefix(attr, "system."), strings.HasPrefix(attr, "security."):
		return 0, fuse.Status(syscall.EOPNOTSUPP)
	case !ours:
		return 0, fuse.ENODATA
	}
	value, err := fs.attribute(nodeID(h.NodeId), name)
	switch {
	case err != nil:
		return 0, status(fs.log, err)
	case len(dest) < len(value):
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}

// ListXAttr implements fuse.RawFileSystem: an empty list.
func (fs *FS) ListXAttr(<-chan struct{}, *fuse.InHeader, []byte) (uint32, fuse.Status) {
	return 0, fuse.OK
}

// SetXAttr implements fuse.RawFileSystem for pins and quotas.
func (fs *FS) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	if fs.doneBefore(&in.InHeader) {
		return fuse.OK
	}
	return status(fs.log, fs.setAttribute(&in.InHeader, attr, in.Flags, strings.TrimRight(string(data), "\n\x00")))
}

// RemoveXAttr implements fuse.RawFileSystem: it lets a pin go, lifts a quota.
func (fs *FS) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, attr string) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	if fs.doneBefore(h) {
		return fuse.OK
	}
	return status(fs.log, fs.setAttribute(h, attr, unix.XATTR_REPLACE, "0"))
}

// setAttribute sets a pin or a quota; the value 0 removes either. ENOTSUP for
// any other attribute, EPERM for those that can only be read.
func (fs *FS) setAttribute(h *fuse.InHeader, attr string, flags uint32, value string) error {
	name, _ := strings.CutPrefix(attr, attrPrefix)
	if attr == name || !isAttribute(name) {
		return syscall.ENOTSUP
	}
	n := nodeID(h.NodeId)
	o, owner, err := fs.settable(n)
	if err != nil {
		return err
	}
	if err := maySet(h, name, n.kind(), owner); err != nil {
		return err
	}
	_, err = fs.attribute(n, name)
	switch there := err == nil; {
	case there && flags&unix.XATTR_CREATE != 0:
		return syscall.EEXIST
	case !there && flags&unix.XATTR_REPLACE != 0:
		return syscall.ENODATA
	}
	op, _ := opOf(h)
	if name == "pin" {
		pinned, err := parsePin(value)
		if err != nil {
			return err
		}
		return fs.idx.SetPin(o, pinned, op)
	}
	bytes, err := parseQuota(value)
	if err != nil {
		return err
	}
	return fs.idx.SetQuota(o, bytes, op)
}

// maySet: a pin is the owner's, as the mode is. A quota is set over an owner, so
// it is for root and for the user that the daemon runs as.
func maySet(h *fuse.InHeader, name string, k nodeKind, owner uint32) error {
	admin := h.Uid == 0 || h.Uid == uint32(os.Geteuid())
	switch {
	case name == "pin" && (admin || h.Uid == owner):
		return nil
	case name == "quota" && k != kindGeneration && admin:
		return nil
	}
	return syscall.EPERM
}

// settable is the object that a pin or a quota of the node is kept for, and its
// owner. ENOTSUP where there is none.
func (fs *FS) settable(n nodeID) (index.Settable, uint32, error) {
	switch n.kind() {
	case kindModel:
		m, err := fs.model(n)
		if err != nil {
			return nil, 0, err
		}
		return m, m.Attr().UID, nil
	case kindIdentity:
		i, err := fs.identity(n)
		if err != nil {
			return nil, 0, err
		}
		return i, i.Attr().UID, nil
	case kindGeneration:
		if g := fs.idx.GenerationByID(n.generation()); g != nil {
			return g, g.Attr().UID, nil
		}
	}
	return nil, 0, syscall.ENOTSUP
}

func parsePin(value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	pinned, err := strconv.ParseBool(value)
	if err != nil {
		return false, syscall.EINVAL
	}
	return pinned, nil
}

// parseQuota reads bytes, or KiB, MiB, GiB, TiB.
func parseQuota(value string) (int64, error) {
	digits, shift := value, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(value, unit); ok {
			digits, shift = strings.TrimSpace(rest), 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<62)>>shift {
		return 0, syscall.EINVAL
	}
	return n << shift, nil
}
