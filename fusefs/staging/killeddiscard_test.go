package staging

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// removals tells in which order the names in a directory go while f runs.
func removals(t *testing.T, dir string, f func()) (names []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	f()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	for buf = buf[:n]; len(buf) > 0; {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
		end := unix.SizeofInotifyEvent + int(e.Len)
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:end], []byte{0})
		if len(name) > 0 {
			names = append(names, string(name))
		}
		buf = buf[end:]
	}
	return names
}

// TestKilledInTheMiddleOfADiscard: whatever of a staging's files had been removed
// when the daemon was killed, the next one starts.
func TestKilledInTheMiddleOfADiscard(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.must(b.writePage(d, 0, pageBytes))
	dir := b.draftDir(d.ID)
	kept := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	b.must(err)
	for _, e := range entries {
		kept[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		b.must(err)
	}
	names := removals(t, dir, func() { b.must(d.Discard()) })
	if len(names) != len(kept) || !slices.Contains(names, "journal") {
		t.Fatalf("removed %v of %d", names, len(kept))
	}
	for n := range names {
		b.must(os.RemoveAll(dir))
		b.must(os.Mkdir(dir, 0o700))
		for name, content := range kept {
			if !slices.Contains(names[:n+1], name) {
				b.must(os.WriteFile(filepath.Join(dir, name), content, 0o600))
			}
		}
		b.kill()
		b.open(false)
		b.noStagings()
	}
}
