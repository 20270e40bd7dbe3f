package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStuckDisk: a disk that does not answer keeps those waiting who want pages
// that are on it alone, and nobody else, however many they are.
func TestStuckDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a disk that does not answer")
	}
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		m.expectWarn("") // of the errors that the disk gives in the end
		id := newIdentity("stuck-disk", 1)
		ident := m.addIdentity(t, "model", id)
		onDisk := shapedGeneration(id, conversation(1, 2000), 256, 64<<10)
		publish(t, ident, onDisk)
		says(t, ckptfs(t, "drop", "--ram", m.path), 0)
		inRAM := smallGeneration(id, conversation(2, 900))
		publish(t, ident, inRAM)

		stuck := stickDisk(t, m, onDisk)
		const clients = 64
		var waiting sync.WaitGroup
		for i := range clients {
			ps := onDisk.pages()
			path := filepath.Join(ident, onDisk.name(), ps[i%len(ps)].path)
			waiting.Go(func() {
				if f, err := os.Open(path); err == nil { // or it is told of the disk's error
					f.Close()
				}
			})
		}
		eventually(t, "all wait", func() error {
			if n := m.fileMetrics(t).value(t, "ckptfs_handles", "kind=page"); n != clients {
				return fmt.Errorf("%v handles on pages", n)
			}
			return nil
		})

		must(t, checkGeneration(filepath.Join(ident, inRAM.name()), inRAM))
		if got := ask(t, ident, inRAM.Tokens); got.Generation != inRAM.name() {
			t.Errorf("found %+v", got)
		}
		another := smallGeneration(id, conversation(3, 900))
		publish(t, ident, another)
		rmSilently(t, filepath.Join(ident, another.name()))
		if names := namesIfAny(ident); len(names) != 3 {
			t.Errorf("listed %q", names)
		}
		if n := m.fileMetrics(t).value(t, "ckptfs_handles", "kind=page"); n != clients {
			t.Errorf("%v of %d clients wait still", n, clients)
		}
		stuck.release()
		waiting.Wait()
		eventually(t, "the pages are there again", func() error { return checkGeneration(filepath.Join(ident, onDisk.name()), onDisk) })
	})
}

// stuckDisk is the directories of some objects, whose opens do not come back.
type stuckDisk struct {
	dirs []string
	fds  []int
}

// stickDisk mounts, over the directories with the objects, filesystems that
// nobody serves.
func stickDisk(t *testing.T, m *mount, g generation) *stuckDisk {
	t.Helper()
	s := &stuckDisk{}
	t.Cleanup(s.release)
	for _, p := range g.pages() {
		dir := filepath.Dir(m.object(p))
		if slices.Contains(s.dirs, dir) {
			continue
		}
		fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
		must(t, err)
		s.fds = append(s.fds, fd)
		must(t, unix.Mount("stuck", dir, "fuse.stuck", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
		s.dirs = append(s.dirs, dir)
	}
	return s
}

// release gives errors to all who wait, and the objects back.
func (s *stuckDisk) release() {
	for _, fd := range s.fds {
		unix.Close(fd)
	}
	for _, dir := range s.dirs {
		unix.Unmount(dir, unix.MNT_DETACH)
	}
	s.fds, s.dirs = nil, nil
}
