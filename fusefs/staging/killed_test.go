package staging

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/index"
)

// happens tells in which order things happen to names in a directory while f runs.
func happens(t *testing.T, dir string, mask uint32, f func()) (names []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, mask); err != nil {
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
	names := happens(t, dir, unix.IN_DELETE, func() { b.must(d.Discard()) })
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

// TestFileOfAStagingGone: a staging that cannot be read back ends, and the others
// and the daemon do not.
func TestFileOfAStagingGone(t *testing.T) {
	for _, gone := range []string{"manifest", "derived"} {
		t.Run(gone, func(t *testing.T) {
			b := newBench(t)
			other, d := b.stage("other", 2, 8), b.stage("x", 1, 8)
			for _, s := range b.missing(other) {
				b.must(b.writePage(other, s, pageBytes))
			}
			b.must(b.writePage(d, 0, pageBytes))
			b.must(os.Remove(filepath.Join(b.draftDir(d.ID), gone)))
			b.reopen()
			if _, ok := b.ByID(d.ID); ok {
				t.Error("it is there")
			}
			other, ok := b.ByID(other.ID)
			if !ok {
				t.Fatal("the other one is gone")
			}
			b.publish(other)
			b.kill()
			b.open(true)
			b.noStagings()
		})
	}
}

// TestKilledInTheMiddleOfACreate: a request that is sent again is not told EEXIST
// because of what it has made itself.
func TestKilledInTheMiddleOfACreate(t *testing.T) {
	b := newBench(t)
	d, err := b.Create(b.ident, "x", index.Attr{Mode: 0o755}, b.nextOp())
	b.must(err)
	names := happens(t, b.draftDir(d.ID), unix.IN_CREATE|unix.IN_MODIFY, func() { b.write(d, EntryTokens, nil) })
	if len(names) != 2 || names[0] != "journal" {
		t.Errorf("%v have changed in this order", names)
	}
	op := b.op
	b.must(os.Remove(d.FilePath(EntryTokens))) // as if it had not been made
	b.reopen()
	d, _ = b.ByID(d.ID)
	if _, err := d.Lookup(Place{}, "tokens"); !b.Done(op) || err == nil {
		t.Errorf("done %v, and the file: %v", b.Done(op), err)
	}
	f, err := d.CreateFile(EntryTokens, index.Attr{Mode: 0o644}, 2, op)
	b.must(err)
	f.Close()
}

// TestKilledBeforeTheTokensGo: a daemon that was killed between accepting a
// manifest and removing the tokens leaves that to the next one.
func TestKilledBeforeTheTokensGo(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	b.must(os.WriteFile(d.FilePath(EntryTokens), tokens(1, 8), 0o600)) // as if they had not been removed
	b.reopen()
	if exists(d.FilePath(EntryTokens)) {
		t.Error("the tokens of an accepted manifest are there")
	}
}
