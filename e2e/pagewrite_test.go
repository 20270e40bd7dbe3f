package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Section 3, step 4: the ways in which a page can come to be there.

// TestWaysToWrite writes each page of one generation in another way.
func TestWaysToWrite(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("ways", 1)
		ident := m.addIdentity(t, "model", id)
		g := shapedGeneration(id, conversation(1, 1200), 100, 64<<10)
		s := beginStaging(t, ident, "s", g)
		pages := g.pages()
		must(t, os.MkdirAll(filepath.Dir(s.file(pages[0].path)), 0o755))
		create := func(p page, flags int) *os.File {
			f, err := os.OpenFile(s.file(p.path), os.O_CREATE|os.O_EXCL|flags, 0o600)
			must(t, err)
			return f
		}
		end := func(f *os.File) { must(t, f.Close()) }

		f := create(pages[0], os.O_WRONLY) // backwards, with pwrite
		for off := pages[0].bytes - 4096; off >= 0; off -= 4096 {
			_, err := f.WriteAt(pageRange(pages[0], 0, off, off+4096), off)
			must(t, err)
		}
		end(f)

		f = create(pages[1], os.O_RDWR) // by mapping
		must(t, f.Truncate(pages[1].bytes))
		b, err := unix.Mmap(int(f.Fd()), 0, int(pages[1].bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		copy(b, pageBytes(pages[1], 0))
		must(t, unix.Munmap(b))
		end(f)

		f = create(pages[2], os.O_WRONLY) // too long at first, then cut, then in odd pieces
		_, err = f.Write(make([]byte, pages[2].bytes+1000))
		must(t, err)
		must(t, f.Truncate(0))
		_, err = f.Seek(0, 0)
		must(t, err)
		for off := int64(0); off < pages[2].bytes; off += 1000 {
			_, err := f.Write(pageRange(pages[2], 0, off, min(off+1000, pages[2].bytes)))
			must(t, err)
		}
		end(f)

		f = create(pages[3], os.O_RDWR) // read back while it is written
		must(t, writePage(f, pages[3], 0))
		must(t, checkOpenPage(f, pages[3]))
		must(t, f.Sync())
		end(f)

		f = create(pages[4], os.O_WRONLY) // fallocate first
		must(t, unix.Fallocate(int(f.Fd()), 0, 0, pages[4].bytes))
		must(t, writePage(f, pages[4], 0))
		end(f)

		f = create(pages[5], os.O_WRONLY) // by two descriptors of one file, the first closed before the last is
		dup, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		g2 := os.NewFile(uintptr(dup), f.Name())
		half := pages[5].bytes / 2
		_, err = f.Write(pageRange(pages[5], 0, 0, half))
		must(t, err)
		end(f)
		wantErrno(t, "rename between the two closes", s.rename(), syscall.EBUSY)
		_, err = g2.WriteAt(pageRange(pages[5], 0, half, pages[5].bytes), half)
		must(t, err)
		end(g2)

		f = create(pages[6], os.O_WRONLY) // copied within the kernel
		src, err := os.Open(filepath.Join(s.path(), pages[0].path))
		must(t, err)
		_, err = f.ReadFrom(src)
		must(t, err)
		must(t, src.Close())
		must(t, f.Truncate(0))
		_, err = f.WriteAt(pageBytes(pages[6], 0), 0)
		must(t, err)
		end(f)

		s.complete(t)
		wantPlan(t, s, false, nil)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), g))
	})
}

// TestCompletePage: a page that is there, complete, cannot be opened for writing.
func TestCompletePage(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("complete", 1)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		publish(t, ident, smallGeneration(id, conversation(1, 500)))
		s := beginStaging(t, ident, "s", g)
		linked, fresh := g.pages()[0], g.pages()[2]
		must(t, s.writePage(fresh, 0))
		for _, p := range []page{linked, fresh} {
			for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREATE, os.O_WRONLY | os.O_TRUNC,
				os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREATE | os.O_TRUNC} {
				f, err := os.OpenFile(s.file(p.path), flags, 0o644)
				if err == nil {
					f.Close()
				}
				wantErrno(t, "opening "+p.path+" for writing", err, syscall.EROFS)
			}
			wantErrno(t, "creating it", s.writePage(p, 1), syscall.EEXIST)
			must(t, checkPage(s.path(), p))
		}
		// A group, rank or position that the manifest does not have.
		for _, path := range []string{"rank-1/target.attention.0/00000000", "rank-0/other/00000000",
			"rank-0/target.attention.0/00000004", "rank-0/target.attention.0/0", "rank-0/target.attention.0/000000000"} {
			if err := os.MkdirAll(filepath.Dir(s.file(path)), 0o755); err == nil {
				wantErrno(t, "creating "+path, createFile(s.file(path)), syscall.EPERM)
			} else {
				wantErrno(t, "directory of "+path, err, syscall.EPERM)
			}
		}
		must(t, os.RemoveAll(s.path()))
	})
}

// TestScratchNames: what rsync does, by hand.
func TestScratchNames(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("scratch", 1)
		ident := m.addIdentity(t, "model", id)
		publish(t, ident, smallGeneration(id, conversation(1, 500)))
		g := smallGeneration(id, conversation(1, 1000))
		s := beginStaging(t, ident, "s", g)
		scratch := func(p page, copyNo int) string {
			name := filepath.Join(filepath.Dir(s.file(p.path)), "."+filepath.Base(p.path)+".Ab12Cd")
			must(t, os.MkdirAll(filepath.Dir(name), 0o755))
			must(t, os.WriteFile(name, pageBytes(p, copyNo), 0o600))
			return name
		}
		fresh, linked := g.pages()[2], g.pages()[0]
		tmp := scratch(fresh, 0)
		must(t, os.Chtimes(tmp, longAgo, longAgo))
		must(t, os.Chmod(tmp, 0o644))
		must(t, syscall.Rename(tmp, s.file(fresh.path)))
		wantMissing(t, tmp)
		must(t, checkPage(s.path(), fresh))

		// Onto a page that is there: it succeeds, and one copy is kept.
		for _, p := range []page{fresh, linked} {
			tmp := scratch(p, 1)
			must(t, syscall.Rename(tmp, s.file(p.path)))
			wantMissing(t, tmp)
			must(t, checkPage(s.path(), p, 0, 1))
		}
		// A scratch name that stays is no page, and does not hinder publication.
		left := scratch(g.pages()[3], 0)
		s.complete(t)
		must(t, os.Remove(left))
		must(t, s.rename())
		must(t, checkGeneration(s.target(), g, 0, 1))
		if got := names(t, filepath.Dir(s.target()+"/"+fresh.path)); len(got) != 4 {
			t.Errorf("the group lists %q", got)
		}
		if st := stat(t, filepath.Join(s.target(), fresh.path)); st.Mode&0o7777 != 0o444 {
			t.Errorf("mode %o after publication", st.Mode&0o7777)
		}
	})
}

// TestLink: link(2) from a published page with the same content key, as rsync -H does.
func TestLink(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("link", 1)
		ident := m.addIdentity(t, "model", id)
		short := smallGeneration(id, conversation(1, 1000))
		from := publish(t, ident, short)
		long := smallGeneration(id, conversation(1, 2000))
		s := beginStaging(t, ident, "s", long)
		must(t, os.MkdirAll(filepath.Join(s.path(), "rank-0/target.attention.0"), 0o755))
		shared := "/rank-0/target.attention.0/00000000"
		wantOneOf(t, "linking what is linked by the filesystem itself", os.Link(from+shared, s.path()+shared), 0, syscall.EEXIST)
		// By the plan the page is there already; unlinked, it can be linked by hand.
		if err := os.Remove(s.path() + shared); err == nil {
			must(t, os.Link(from+shared, s.path()+shared))
		}
		a, b := stat(t, from+shared), stat(t, s.path()+shared)
		if a.Ino != b.Ino {
			t.Errorf("inode %d by one name, %d by the other", a.Ino, b.Ino)
		}
		// Another page's bytes do not become this page's by a link.
		wantOneOf(t, "linking another content",
			os.Link(from+"/rank-0/target.attention.0/00000003", s.path()+"/rank-0/target.attention.0/00000003"),
			syscall.EPERM, syscall.EINVAL, syscall.EXDEV)
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), long))
		must(t, checkGeneration(from, short))
	})
}
