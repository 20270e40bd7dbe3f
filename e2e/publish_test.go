package e2e

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Section 3, step 5: what rename answers.

// newStaging mounts and begins a small generation in it.
func newStaging(t *testing.T, md mode, flags ...string) (*mount, staging) {
	t.Helper()
	m := mountFS(t, md, flags...)
	id := newIdentity(t.Name(), 2)
	ident := m.addIdentity(t, "model", id)
	return m, beginStaging(t, ident, "s", smallGeneration(id, conversation(1, 1000)))
}

func TestRenameBusy(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		pages := s.g.pages()
		last := pages[len(pages)-1]
		for i, p := range pages[:len(pages)-1] {
			if i%3 == 0 {
				wantErrno(t, "rename with pages missing", s.rename(), syscall.EBUSY)
			}
			must(t, s.writePage(p, 0))
		}
		wantMissing(t, s.target())

		must(t, os.MkdirAll(filepath.Dir(s.file(last.path)), 0o755))
		f, err := os.OpenFile(s.file(last.path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		must(t, err)
		wantErrno(t, "rename with an empty page", s.rename(), syscall.EBUSY)
		_, err = f.Write(pageRange(last, 0, 0, last.bytes-8))
		must(t, err)
		wantErrno(t, "rename with a short page", s.rename(), syscall.EBUSY)
		wantPlan(t, s, false, []page{last})
		_, err = f.Write(pageRange(last, 0, last.bytes-8, last.bytes))
		must(t, err)
		wantErrno(t, "rename with a writer", s.rename(), syscall.EBUSY)
		wantMissing(t, s.target())
		if contains(names(t, s.ident), s.g.name()) {
			t.Error("listed before publication")
		}
		must(t, f.Close())
		must(t, s.rename())
		must(t, checkGeneration(s.target(), s.g))
		wantMissing(t, s.path())
	})
}

// TestRenameReaders: readers do not hinder publication, and their handles live on.
func TestRenameReaders(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		s.complete(t)
		p := s.g.pages()[0]
		f, err := os.Open(s.file(p.path))
		must(t, err)
		defer f.Close()
		dir, err := os.Open(s.path())
		must(t, err)
		defer dir.Close()
		must(t, s.rename())
		must(t, checkOpenPage(f, p))
		var st unix.Stat_t
		must(t, unix.Fstatat(int(dir.Fd()), p.path, &st, 0))
		if a := stat(t, filepath.Join(s.target(), p.path)); a.Ino != st.Ino {
			t.Errorf("inode %d below the staging's handle, %d below the generation", st.Ino, a.Ino)
		}
	})
}

// TestManifestReadOverPublication: who has begun to read the manifest of a staging
// reads what was written, not the middle of what is published.
func TestManifestReadOverPublication(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("manifest", 1)
		ident := m.addIdentity(t, "model", id)
		s := beginStaging(t, ident, "s", smallGeneration(id, conversation(1, 600)))
		s.complete(t)
		written, err := os.ReadFile(s.file("manifest.json"))
		must(t, err)
		f, err := os.Open(s.file("manifest.json"))
		must(t, err)
		defer f.Close()
		got := make([]byte, 20)
		must(t, second(io.ReadFull(f, got)))
		must(t, s.rename())
		rest, err := io.ReadAll(f)
		must(t, err)
		if got = append(got, rest...); !bytes.Equal(got, written) {
			t.Errorf("read %q, written was %q", got, written)
		}
	})
}

// TestWritableMapping: a mapping counts as a writer after its descriptor is
// closed, until it is unmapped or its process is killed.
func TestWritableMapping(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		pages := s.g.pages()
		for _, p := range pages[2:] {
			must(t, s.writePage(p, 0))
		}
		must(t, os.MkdirAll(filepath.Dir(s.file(pages[0].path)), 0o755))
		a := newAgent(t)
		mapped := func(p page) int {
			fd := int(a.do(request{Op: "open", Path: s.file(p.path), Flags: os.O_CREATE | os.O_EXCL | os.O_RDWR, Mode: 0o644}).N)
			a.do(request{Op: "truncate", FD: fd, Len: p.bytes})
			id := a.do(request{Op: "mmap", FD: fd, Len: p.bytes, Flags: unix.PROT_READ | unix.PROT_WRITE, Mode: unix.MAP_SHARED}).N
			a.do(request{Op: "close", FD: fd})
			a.do(request{Op: "mapwrite", FD: int(id), Page: wire(p), Off: 0, Len: p.bytes - 64})
			return int(id)
		}
		first, second := mapped(pages[0]), mapped(pages[1])
		wantErrno(t, "rename with two mappings", s.rename(), syscall.EBUSY)
		a.do(request{Op: "mapwrite", FD: first, Page: wire(pages[0]), Off: pages[0].bytes - 64, Len: 64})
		a.do(request{Op: "mapwrite", FD: second, Page: wire(pages[1]), Off: pages[1].bytes - 64, Len: 64})
		wantErrno(t, "rename with two mappings, written", s.rename(), syscall.EBUSY)
		a.do(request{Op: "munmap", FD: first})
		wantErrno(t, "rename with one mapping left", s.rename(), syscall.EBUSY)
		a.kill()
		eventually(t, "publication after the mapping's process is gone", s.rename)
		must(t, checkGeneration(s.target(), s.g))
	})
}

// TestPrivateMapping: a private mapping writes nothing, so it is no writer.
func TestPrivateMapping(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		s.complete(t)
		p := s.g.pages()[0]
		a := newAgent(t)
		fd := int(a.do(request{Op: "open", Path: s.file(p.path), Flags: os.O_RDONLY}).N)
		id := a.do(request{Op: "mmap", FD: fd, Len: p.bytes, Flags: unix.PROT_READ | unix.PROT_WRITE, Mode: unix.MAP_PRIVATE}).N
		a.do(request{Op: "close", FD: fd})
		a.do(request{Op: "mapwrite", FD: int(id), Page: wire(p), Copy: 1, Len: 4096})
		must(t, s.rename())
		must(t, checkGeneration(s.target(), s.g))
	})
}

func TestRenameRefused(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m, s := newStaging(t, md)
		s.complete(t)
		elsewhere := m.addIdentity(t, "model", newIdentity("elsewhere", 2))
		done := publish(t, s.ident, smallGeneration(s.g.ID, conversation(9, 300)))
		name := s.g.name()
		for _, to := range []string{"other", "0" + name, name + "0", strings.ToUpper(name),
			strings.Replace(name, "response", "prompt", 1), strings.Repeat("f", 255)} {
			wantErrno(t, "rename to "+to, syscall.Rename(s.path(), filepath.Join(s.ident, to)), syscall.EINVAL)
			wantSentence(t, "the reason", s.reason(t))
		}
		wantErrno(t, "rename into another identity", syscall.Rename(s.path(), filepath.Join(elsewhere, name)), syscall.EXDEV)
		wantErrno(t, "exchange", renameFlags(s.path(), done, unix.RENAME_EXCHANGE), syscall.EINVAL)
		wantErrno(t, "whiteout", renameFlags(s.path(), s.target(), unix.RENAME_WHITEOUT), syscall.EINVAL)
		wantErrno(t, "onto another generation", syscall.Rename(s.path(), done), syscall.EINVAL)
		wantMissing(t, s.target())
		must(t, renameFlags(s.path(), s.target(), unix.RENAME_NOREPLACE))
		must(t, checkGeneration(s.target(), s.g))

		again := beginStaging(t, s.ident, "again", s.g)
		wantErrno(t, "again", again.rename(), syscall.EEXIST)
		wantErrno(t, "again, not replacing", renameFlags(again.path(), s.target(), unix.RENAME_NOREPLACE), syscall.EEXIST)
		must(t, os.RemoveAll(again.path()))
	})
}

// TestPageTooLong: more bytes than page_bytes are a mistake that waiting does not mend.
func TestPageTooLong(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		pages := s.g.pages()
		for _, p := range pages[1:] {
			must(t, s.writePage(p, 0))
		}
		long := pages[0]
		long.bytes++
		err := s.writePage(long, 0)
		if err != nil { // where the filesystem sees the bytes it may refuse them at once
			wantOneOf(t, "writing too much", err, syscall.EFBIG, syscall.EINVAL)
		}
		if stat(t, s.file(long.path)).Size == long.bytes {
			wantErrno(t, "rename with a page that is too long", s.rename(), syscall.EINVAL)
			wantSentence(t, "the reason", s.reason(t))
			if !strings.Contains(s.reason(t), "00000000") {
				t.Errorf("the reason does not say which page: %q", s.reason(t))
			}
		}
		wantMissing(t, s.target())
		must(t, os.RemoveAll(s.path()))
	})
}

// TestWaitingRanks: each of two rank processes renames when its part is done.
func TestWaitingRanks(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		for rank := range 2 {
			a := newAgent(t)
			a.do(request{Op: "writerank", Path: s.ident, To: s.name, Gen: &s.g, Rank: rank})
			err := a.call(request{Op: "rename-staging", Path: s.ident, To: s.name, Gen: &s.g}).err()
			wantErrno(t, "rename by the rank", err, []syscall.Errno{syscall.EBUSY, 0}[rank])
		}
		must(t, checkGeneration(s.target(), s.g))
	})
}

// TestModesAtPublication: pages and the manifest are 0444 once published.
func TestModesAtPublication(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		_, s := newStaging(t, md)
		s.complete(t)
		pages := s.g.pages()
		must(t, os.Chmod(s.file(pages[0].path), 0o777))
		must(t, os.Chown(s.file(pages[1].path), 77, 78))
		must(t, os.Chtimes(s.file(pages[2].path), longAgo, longAgo))
		must(t, os.Chmod(s.file("manifest.json"), 0o600))
		must(t, os.Chmod(s.path(), 0o750))
		must(t, os.Chmod(s.file("rank-1"), 0o711))
		must(t, s.rename())
		for _, p := range append(pages, page{path: "manifest.json"}) {
			if st := stat(t, filepath.Join(s.target(), p.path)); st.Mode != syscall.S_IFREG|0o444 {
				t.Errorf("%s has mode %o", p.path, st.Mode)
			}
		}
		if st := stat(t, filepath.Join(s.target(), pages[1].path)); st.Uid != 77 || st.Gid != 78 {
			t.Errorf("owner %d:%d, want 77:78", st.Uid, st.Gid)
		}
		if st := stat(t, filepath.Join(s.target(), pages[2].path)); st.Mtim.Sec != longAgo.Unix() {
			t.Errorf("mtime %d, want %d", st.Mtim.Sec, longAgo.Unix())
		}
		for dir, mode := range map[string]uint32{s.target(): 0o750, s.target() + "/rank-1": 0o711} {
			if st := stat(t, dir); st.Mode&0o7777 != mode {
				t.Errorf("%s has mode %o, want %o", dir, st.Mode&0o7777, mode)
			}
		}
	})
}
