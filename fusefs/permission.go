package fusefs

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
)

// mayWriteDir reports whether the caller may make an entry in a directory with
// these attributes. The kernel asks this itself for all but what a transaction
// file does on the caller's behalf.
func mayWriteDir(a index.Attr, in *fuse.InHeader) bool {
	const writeAndSearch = 3
	switch {
	case in.Uid == 0:
		return true
	case in.Uid == a.UID:
		return a.Mode>>6&writeAndSearch == writeAndSearch
	case in.Gid == a.GID || slices.Contains(groupsOf(in.Pid), a.GID):
		return a.Mode>>3&writeAndSearch == writeAndSearch
	}
	return a.Mode&writeAndSearch == writeAndSearch
}

// inherit gives what is made in a directory with the set-group-ID bit the
// directory's group, and to a directory the bit too, as a local filesystem does.
func (fs *FS) inherit(dir nodeID, a index.Attr, isDir bool) index.Attr {
	var parent fuse.Attr
	if _, err := fs.getAttr(dir, &parent); err != nil {
		return a
	}
	return inheritFrom(index.Attr{Mode: parent.Mode, GID: parent.Gid}, a, isDir)
}

func inheritFrom(parent, a index.Attr, isDir bool) index.Attr {
	if parent.Mode&syscall.S_ISGID == 0 {
		return a
	}
	a.GID = parent.GID
	if isDir {
		a.Mode |= syscall.S_ISGID
	}
	return a
}

// groupsOf gives a thread's supplementary groups, which requests don't carry.
func groupsOf(tid uint32) []uint32 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/status")
	if err != nil {
		return nil
	}
	_, rest, _ := bytes.Cut(raw, []byte("\nGroups:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	var gs []uint32
	for _, f := range bytes.Fields(line) {
		if g, err := strconv.ParseUint(string(f), 10, 32); err == nil {
			gs = append(gs, uint32(g))
		}
	}
	return gs
}
