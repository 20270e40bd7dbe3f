package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Listings: complete, without duplicates, with cookies that stay good.

// dirent is one entry as getdents64 returns it; off is the cookie of what follows.
type dirent struct {
	name string
	ino  uint64
	off  int64
}

// readDirents reads one buffer of entries.
func readDirents(fd, size int) ([]dirent, error) {
	buf := make([]byte, size)
	n, err := unix.Getdents(fd, buf)
	if err != nil {
		return nil, err
	}
	var list []dirent
	for b := buf[:n]; len(b) > 0; {
		reclen := binary.NativeEndian.Uint16(b[16:])
		name := b[19:reclen]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		d := dirent{name: string(name), ino: binary.NativeEndian.Uint64(b), off: int64(binary.NativeEndian.Uint64(b[8:]))}
		if d.name != "." && d.name != ".." {
			list = append(list, d)
		}
		b = b[reclen:]
		if len(list) == 0 && len(b) == 0 { // only dots in this buffer: not the end
			return readDirents(fd, size)
		}
	}
	return list, nil
}

func readAllDirents(fd, size int) ([]dirent, error) {
	var all []dirent
	for {
		list, err := readDirents(fd, size)
		if err != nil || len(list) == 0 {
			return all, err
		}
		all = append(all, list...)
	}
}

func openDir(t testing.TB, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	return fd
}

// publishMany publishes n tiny generations with several writers and returns their names.
func publishMany(t *testing.T, ident string, id identity, seed uint64, n int) map[string]bool {
	t.Helper()
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		made = map[string]bool{}
	)
	const writers = 4
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n; i += writers {
				g := tinyGeneration(id, conversation(seed+uint64(i), 5))
				if _, err := publishAs(ident, fmt.Sprint("m", i), g); err != nil {
					t.Errorf("publishing: %v", err)
					return
				}
				mu.Lock()
				made[g.name()] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return made
}

// TestListing lists thousands of generations in small pieces while others come and go.
func TestListing(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		n := 5000
		if md.name != "passthrough" || testing.Short() {
			n = 1000 // listing does not depend on the way of page bytes
		}
		id := newIdentity("listing", 1)
		ident := m.addIdentity(t, "model", id)
		stay := publishMany(t, ident, id, 1000, n)

		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { comeAndGo(t, ident, id, done) })
		for _, size := range []int{512, 4096, 32 << 10} {
			fd := openDir(t, ident)
			all, err := readAllDirents(fd, size)
			must(t, err)
			must(t, unix.Close(fd))
			seen := map[string]bool{}
			for _, d := range all {
				if seen[d.name] {
					t.Errorf("%s is listed twice", d.name)
				}
				seen[d.name] = true
			}
			for name := range stay {
				if !seen[name] {
					t.Errorf("%s is not listed", name)
				}
			}
		}
		close(done)
		wg.Wait()
		if got := names(t, ident); len(got) != n+1 {
			t.Errorf("%d names are listed at the end, want %d and identity.json", len(got), n)
		}
	})
}

// comeAndGo publishes and removes generations until it is told to stop.
func comeAndGo(t *testing.T, ident string, id identity, done chan struct{}) {
	for i := uint64(0); ; i++ {
		select {
		case <-done:
			return
		default:
		}
		g := tinyGeneration(id, conversation(900000+i, 5))
		if _, err := publishAs(ident, "come", g); err != nil {
			t.Errorf("publishing: %v", err)
			return
		}
		if err := os.RemoveAll(filepath.Join(ident, g.name())); err != nil {
			t.Errorf("removing: %v", err)
			return
		}
	}
}

// TestDirectoryCookies: a cookie continues where it was taken, whatever was
// removed since, and seeking to one gives the same entries again.
func TestDirectoryCookies(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("cookies", 1)
		ident := m.addIdentity(t, "model", id)
		publishMany(t, ident, id, 1, 300)
		fd := openDir(t, ident)
		defer unix.Close(fd)
		all, err := readAllDirents(fd, 1024)
		must(t, err)
		cookies := map[int64]bool{}
		for i, d := range all {
			if cookies[d.off] {
				t.Errorf("cookie %d is given twice", d.off)
			}
			cookies[d.off] = true
			var st unix.Stat_t
			must(t, unix.Fstatat(fd, d.name, &st, unix.AT_SYMLINK_NOFOLLOW))
			if st.Ino != d.ino {
				t.Errorf("%s: inode %d in the listing, %d by stat", d.name, d.ino, st.Ino)
			}
			if i%37 != 0 || i == len(all)-1 {
				continue
			}
			next := seekAndRead(t, fd, d.off, 256)
			if len(next) == 0 || next[0] != all[i+1] {
				t.Errorf("after entry %d comes %+v, at first it was %+v", i, next, all[i+1])
			}
		}
		// Removing what was read before the cookie, and at it, moves nothing after it.
		for _, d := range all[:100] {
			if d.name != "identity.json" {
				must(t, os.RemoveAll(filepath.Join(ident, d.name)))
			}
		}
		rest := seekAndRead(t, fd, all[99].off, 64<<10)
		if len(rest) < 100 || rest[0].name != all[100].name {
			t.Errorf("after removals the stream goes on with %d entries, at %+v, want %s", len(rest), rest[0], all[100].name)
		}
		// And so it does for another process' handle, from the start.
		fresh := openDir(t, ident)
		defer unix.Close(fresh)
		now, err := readAllDirents(fresh, 4096)
		must(t, err)
		if want := len(names(t, ident)); len(now) != want {
			t.Errorf("%d entries, want %d", len(now), want)
		}
	})
}

func seekAndRead(t testing.TB, fd int, off int64, size int) []dirent {
	t.Helper()
	_, err := unix.Seek(fd, off, 0)
	must(t, err)
	list, err := readDirents(fd, size)
	must(t, err)
	return list
}
