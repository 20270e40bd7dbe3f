package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RAMKind says what a RAM tier lives on.
type RAMKind int

const (
	// RAMDirectory is a directory in somebody else's tmpfs, usually /dev/shm:
	// the fallback where mounting is not permitted. Its limits are shared.
	RAMDirectory RAMKind = iota
	// RAMTmpfs is a tmpfs of our own, with its own size and huge pages.
	RAMTmpfs
)

// String gives the kind's name as status shows it.
func (k RAMKind) String() string {
	if k == RAMTmpfs {
		return "tmpfs"
	}
	return "directory"
}

// ramMountFlags are repeated at every remount: a remount without them clears them.
const ramMountFlags = unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_NODEV

// minRAMInodes keeps a small tier from running out of inodes before space;
// an inode costs about 1 KiB of kernel memory only when it is used.
const minRAMInodes = 1 << 20

// RAMBytes is the size of the tmpfs for l1Bytes of pages: journals, manifests and
// handles need some too.
func RAMBytes(l1Bytes int64) int64 { return l1Bytes + l1Bytes/16 + 64<<20 }

// MountRAM mounts a tmpfs of sizeBytes at dir, which must exist. With
// hugePages it asks for huge=within_size and does without where the kernel
// refuses the option (built without it). The mount outlives the process that
// made it; the next one adopts it (Mounted). Errors wrap the errno; EPERM is
// the signal to fall back to a directory in /dev/shm. Called by the keeper.
func MountRAM(dir string, sizeBytes int64, hugePages bool) error {
	if sizeBytes <= 0 {
		return fmt.Errorf("mount RAM tier at %s: size %d bytes: %w", dir, sizeBytes, unix.EINVAL)
	}
	data := ramMountData(sizeBytes) + ",mode=0700"
	mount := func(data string) error {
		return retryEINTR(func() error { return unix.Mount("ckptfs-ram", dir, "tmpfs", ramMountFlags, data) })
	}
	var err error = unix.EINVAL
	if hugePages {
		err = mount(data + ",huge=within_size")
	}
	if errors.Is(err, unix.EINVAL) {
		err = mount(data)
	}
	if err != nil {
		return fmt.Errorf("mount RAM tier at %s: %w", dir, err)
	}
	return nil
}

// ResizeRAM changes the size of the tmpfs mounted at dir. The kernel refuses
// (EINVAL) a size below what is in use; huge pages and mode stay as they are.
func ResizeRAM(dir string, sizeBytes int64) error {
	if sizeBytes <= 0 {
		return fmt.Errorf("resize RAM tier at %s: size %d bytes: %w", dir, sizeBytes, unix.EINVAL)
	}
	err := retryEINTR(func() error {
		return unix.Mount("ckptfs-ram", dir, "tmpfs", unix.MS_REMOUNT|ramMountFlags, ramMountData(sizeBytes))
	})
	if err != nil {
		return fmt.Errorf("resize RAM tier at %s to %d bytes: %w", dir, sizeBytes, err)
	}
	return nil
}

func ramMountData(sizeBytes int64) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d", sizeBytes, max(minRAMInodes, sizeBytes/4096))
}

// UnmountRAM takes the tmpfs at dir away, and with it every page in it. Lazy
// detaches it even while files are open; they stay good until they are closed.
// Without lazy, EBUSY says that somebody still uses it.
func UnmountRAM(dir string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	if err := retryEINTR(func() error { return unix.Unmount(dir, flags) }); err != nil {
		return fmt.Errorf("unmount RAM tier at %s: %w", dir, err)
	}
	return nil
}

// IsTmpfs reports whether dir lies on a tmpfs, whoever mounted it.
func IsTmpfs(dir string) bool {
	var st unix.Statfs_t
	err := retryEINTR(func() error { return unix.Statfs(dir, &st) })
	return err == nil && int64(st.Type) == unix.TMPFS_MAGIC
}

// Mounted reports whether dir is the root of a mounted tmpfs: a RAM tier of an
// earlier process, to be adopted. An absent dir is false without an error.
func Mounted(dir string) (bool, error) {
	root, err := isMountRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a mount at %s: %w", dir, err)
	}
	return root && IsTmpfs(dir), nil
}

// isMountRoot asks statx (kernel 5.8 and later says so directly) and otherwise
// compares the device with that of the parent.
func isMountRoot(dir string) (bool, error) {
	var stx unix.Statx_t
	err := retryEINTR(func() error {
		return unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &stx)
	})
	if err != nil {
		return false, err
	}
	if stx.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return stx.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	var st, parent unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return false, err
	}
	if err := unix.Lstat(filepath.Join(dir, ".."), &parent); err != nil {
		return false, err
	}
	return st.Dev != parent.Dev || st.Ino == parent.Ino, nil
}
