package fusefs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// blockBytes is the unit of df.
const blockBytes = 4096

// diskFill is what the disk tier may take, and takes for pages. Without a bound of
// its own it may take what its disk has left.
func (fs *FS) diskFill() (size, used int64) {
	u := fs.disk.Usage()
	used = u.ContentBytes()
	if u.SizeBytes > 0 {
		return max(u.SizeBytes-u.OverheadBytes, used), used
	}
	free, err := fs.disk.FreeBytes()
	if err != nil {
		return used, used
	}
	return used + max(free-fs.cfg.Tiers.MinFreeBytes, 0), used
}

// StatFs implements fuse.RawFileSystem: the size of both tiers and what pages
// hold or have been promised. As inodes it counts generations, of more than there
// can be: that many are no reason for an alarm.
func (fs *FS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	held, reserved := fs.budget.Usage()
	size, used := fs.diskFill()
	limit := fs.budget.Limit() + size
	free := max(limit-held-reserved-used, 0)
	const inodes = 1 << 30
	*out = fuse.StatfsOut{
		Blocks: uint64(limit / blockBytes), Bfree: uint64(free / blockBytes), Bavail: uint64(free / blockBytes),
		Files: inodes, Ffree: inodes - uint64(fs.idx.Count()),
		Bsize: blockBytes, Frsize: blockBytes, NameLen: 255,
	}
	return fuse.OK
}

// Ioctl implements fuse.RawFileSystem.
func (fs *FS) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(syscall.ENOTTY)
}

// Access implements fuse.RawFileSystem: the kernel decides by itself
// (default_permissions).
func (fs *FS) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }
