package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// requireFUSE skips a test where the machine cannot mount, and says why. With
// CKPTFS_REQUIRE_FUSE=1 it fails it. It tries the kernel itself, not ckptfs:
// a ckptfs that cannot mount must not skip its own tests.
func requireFUSE(t *testing.T) {
	t.Helper()
	if err := fuseWorks(); err != nil {
		if os.Getenv("CKPTFS_REQUIRE_FUSE") == "1" {
			t.Fatalf("FUSE is required and does not work here: %v", err)
		}
		t.Skipf("FUSE does not work here: %v", err)
	}
}

var fuseWorks = sync.OnceValue(func() error {
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer dev.Close()
	dir, err := os.MkdirTemp(suite.dir, "try-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", dev.Fd(), os.Getuid(), os.Getgid())
	if err := unix.Mount("ckptfs-try", dir, "fuse", unix.MS_NODEV|unix.MS_NOSUID, data); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
})

// mountEntry is one line of the mount table.
type mountEntry struct {
	point, fstype, options string
}

func mountTable() []mountEntry {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var table []mountEntry
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		table = append(table, mountEntry{point: unescapeMount(f[4]), fstype: g[0], options: f[5] + "," + g[2]})
	}
	return table
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountsBelow returns the mount points at and below dir, the innermost first.
func mountsBelow(dir string) []string {
	var points []string
	for _, e := range mountTable() {
		if e.point == dir || strings.HasPrefix(e.point, dir+"/") {
			points = append([]string{e.point}, points...)
		}
	}
	return points
}

// abortMounts ends the connections of all mounts of this program, so that every
// call that hangs in one comes back.
func abortMounts() {
	for _, p := range mountsBelow(suite.dir) {
		unix.Unmount(p, unix.MNT_FORCE)
	}
}

func (m *mount) mounts() []string { return mountsBelow(m.dir) }

// processes returns the pids of the living processes of the mount.
func (m *mount) processes() []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil && m.owns(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// owns tells whether pid is a process that this mount started.
func (m *mount) owns(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	mark := []byte(mountEnv + "=" + m.dir)
	for _, v := range bytes.Split(env, []byte{0}) {
		if bytes.Equal(v, mark) {
			return true
		}
	}
	return false
}

// openBelow returns what this program itself has open below dir.
func openBelow(dir string) []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var open []string
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			open = append(open, to)
		}
	}
	return open
}
