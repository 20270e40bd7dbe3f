package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"ckptfs/pages"

	"golang.org/x/sys/unix"
)

// ramDirName is where the RAM tier is mounted, below the state directory.
const ramDirName = "ram"

// sharedTmpfs is where the RAM tier goes when a tmpfs of its own cannot be mounted.
const sharedTmpfs = "/dev/shm"

// The values of --ram-tier.
const (
	ramAuto  = "auto"  // tmpfs if it may be mounted, else shm
	ramTmpfs = "tmpfs" // a tmpfs of its own, of a hard size, with huge pages
	ramShm   = "shm"   // a directory in /dev/shm
)

// ramTier is where the bytes of the RAM tier live. It outlives the processes; the next keeper adopts it.
type ramTier struct {
	dir       string
	kind      string // ramTmpfs or ramShm
	hugePages bool
	adopted   bool // it was there already
}

// describe is the tier in words: "tmpfs, huge pages".
func (t ramTier) describe() string {
	switch {
	case t.kind == ramShm:
		return "directory in " + sharedTmpfs
	case t.hugePages:
		return "tmpfs, huge pages"
	}
	return "tmpfs"
}

// openRAMTier adopts the RAM tier that an earlier keeper of this state left behind, or makes one. l1Bytes is for
// pages; what stagings keep beside them comes on top. A tier of the other kind than asked for is not thrown away: it
// holds pages that the index knows.
func openRAMTier(stateDir, kind string, l1Bytes int64, log *slog.Logger) (ramTier, error) {
	own := filepath.Join(stateDir, ramDirName)
	shared := sharedRAMDir(stateDir)
	mounted, err := pages.Mounted(own)
	if err != nil {
		return ramTier{}, withCode(exitRAM, err)
	}
	left := holdsPages(shared)
	switch {
	case mounted && kind == ramShm:
		return ramTier{}, withCode(exitRAM, fmt.Errorf("the RAM tier of an earlier run is mounted at %s; use --ram-tier=tmpfs, or lose its pages with umount %s", own, own))
	case left && kind == ramTmpfs:
		return ramTier{}, withCode(exitRAM, fmt.Errorf("the RAM tier of an earlier run is in %s; use --ram-tier=shm, or lose its pages with rm -r %s", shared, shared))
	case mounted:
		return adoptTmpfs(own, l1Bytes, log)
	case kind == ramShm || left:
		return openShared(shared, l1Bytes)
	}
	tier, err := mountTmpfs(own, l1Bytes)
	if errors.Is(err, syscall.EPERM) && kind == ramAuto {
		log.Info("a tmpfs cannot be mounted here, the RAM tier is in "+sharedTmpfs, "dir", shared, "err", err)
		return openShared(shared, l1Bytes)
	}
	return tier, withCode(exitRAM, err)
}

func mountTmpfs(dir string, l1Bytes int64) (ramTier, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ramTier{}, err
	}
	if err := pages.MountRAM(dir, pages.RAMBytes(l1Bytes), true); err != nil {
		return ramTier{}, err
	}
	return ramTier{dir: dir, kind: ramTmpfs, hugePages: hasHugePages(dir)}, nil
}

func adoptTmpfs(dir string, l1Bytes int64, log *slog.Logger) (ramTier, error) {
	if err := pages.ResizeRAM(dir, pages.RAMBytes(l1Bytes)); err != nil {
		// More is in use than the new size: pages must go first, and then the daemon does it.
		log.Info("the RAM tier keeps its size for now", "dir", dir, "err", err)
	}
	return ramTier{dir: dir, kind: ramTmpfs, hugePages: hasHugePages(dir), adopted: true}, nil
}

// hasHugePages reports whether the tmpfs at dir is mounted with huge pages.
func hasHugePages(dir string) bool {
	table, err := mountTable()
	if err != nil {
		return false
	}
	stack := mountsAt(table, dir)
	return len(stack) > 0 && stack[len(stack)-1].hasOption("huge=within_size")
}

// sharedRAMDir is the directory of this state's RAM tier in /dev/shm.
func sharedRAMDir(stateDir string) string {
	sum := sha256.Sum256([]byte(stateDir))
	return filepath.Join(sharedTmpfs, fmt.Sprintf("ckptfs-%x", sum[:8]))
}

func holdsPages(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

// openShared makes or adopts the directory in /dev/shm. Anybody may make names there, so one that is not ours alone
// is refused.
func openShared(dir string, l1Bytes int64) (ramTier, error) {
	adopted := true
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		adopted = false
	} else if !errors.Is(err, os.ErrExist) {
		return ramTier{}, withCode(exitRAM, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return ramTier{}, withCode(exitRAM, &os.PathError{Op: "lstat", Path: dir, Err: err})
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return ramTier{}, withCode(exitRAM, fmt.Errorf("%s is not a directory of this user alone; remove it", dir))
	}
	if !pages.IsTmpfs(dir) {
		return ramTier{}, withCode(exitRAM, fmt.Errorf("%s is not on a tmpfs", dir))
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && !adopted && int64(fs.Blocks)*fs.Bsize < l1Bytes {
		os.Remove(dir)
		return ramTier{}, withCode(exitRAM, fmt.Errorf("%s has %s, less than --l1-size %s; make it larger or --l1-size smaller",
			sharedTmpfs, sizeValue(int64(fs.Blocks)*fs.Bsize).people(), sizeValue(l1Bytes).people()))
	}
	return ramTier{dir: dir, kind: ramShm, adopted: adopted}, nil
}

// howToLose is the command that gives up a tier that was kept.
func (t ramTier) howToLose() string {
	if t.kind == ramShm {
		return "rm -r " + t.dir
	}
	return "umount " + t.dir
}

// release gives the memory back at a clean stop. A tmpfs that a client still uses by a mapping goes with that.
func (t ramTier) release() error {
	if t.kind == ramShm {
		return os.RemoveAll(t.dir)
	}
	err := pages.UnmountRAM(t.dir, false)
	if errors.Is(err, syscall.EBUSY) {
		err = pages.UnmountRAM(t.dir, true)
	}
	return err
}
