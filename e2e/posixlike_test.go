package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestPosixLike does on the files of a staging what posixtest does on files of
// any name: these are scratch files, which are ordinary files until they are
// renamed to a page.
func TestPosixLike(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("posix like", 1)
		ident := m.addIdentity(t, "model", id)
		s := beginStaging(t, ident, "s", smallGeneration(id, conversation(1, 1000)))
		dir := filepath.Dir(s.file(s.g.pages()[0].path))
		must(t, os.MkdirAll(dir, 0o755))
		for name, f := range map[string]func(t *testing.T, path string){
			"basic": likeBasic, "append": likeAppend, "direct": likeDirect, "fallocate": likeFallocate,
			"truncate": likeTruncate, "deleted": likeDeleted, "locks": likeLocks, "rename": likeRename,
		} {
			t.Run(name, func(t *testing.T) { f(t, filepath.Join(dir, "."+name)) })
		}
		must(t, os.RemoveAll(s.path()))
	})
}

func likeBasic(t *testing.T, path string) {
	want := []byte("hello world")
	must(t, os.WriteFile(path, want, 0o755))
	got, err := os.ReadFile(path)
	must(t, err)
	st := stat(t, path)
	if !bytes.Equal(got, want) || st.Mode != syscall.S_IFREG|0o755 || st.Size != int64(len(want)) || st.Nlink != 1 {
		t.Errorf("read %q, mode %o, size %d, %d links", got, st.Mode, st.Size, st.Nlink)
	}
}

func likeAppend(t *testing.T, path string) {
	must(t, os.WriteFile(path, []byte("hello"), 0o644))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	must(t, second(f.Write([]byte(" world"))))
	if got, err := os.ReadFile(path); err != nil || string(got) != "hello world" {
		t.Errorf("read %q, %v", got, err)
	}
}

func likeDirect(t *testing.T, path string) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0o644)
	must(t, err)
	defer unix.Close(fd)
	raw := make([]byte, 16<<10)
	buf := raw[-uintptr(unsafe.Pointer(&raw[0]))&4095:][:8192]
	copy(buf, bytes.Repeat([]byte("bye "), 2048))
	n, err := unix.Pwrite(fd, buf, 0)
	must(t, err)
	if got, err := os.ReadFile(path); err != nil || n != len(buf) || !bytes.Equal(got, buf) {
		t.Errorf("wrote %d bytes, read %d: %v", n, len(got), err)
	}
}

func likeFallocate(t *testing.T, path string) {
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	data := bytes.Repeat([]byte{42}, 100)
	must(t, second(f.Write(data)))
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 50, 5000))
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after fallocate with KEEP_SIZE: %d bytes, %v", len(got), err)
	}
	must(t, unix.Fallocate(int(f.Fd()), 0, 50, 5000))
	if st := stat(t, path); st.Size != 5050 {
		t.Errorf("after fallocate: size %d, want 5050", st.Size)
	}
}

func likeTruncate(t *testing.T, path string) {
	must(t, os.WriteFile(path, []byte("hello world"), 0o644))
	must(t, os.Truncate(path, 5))
	if got, err := os.ReadFile(path); err != nil || string(got) != "hello" {
		t.Errorf("cut: %q, %v", got, err)
	}
	must(t, os.Truncate(path, 8))
	if got, err := os.ReadFile(path); err != nil || string(got) != "hello\x00\x00\x00" {
		t.Errorf("grown: %q, %v", got, err)
	}
}

func likeDeleted(t *testing.T, path string) {
	var files []*os.File
	var before []*syscall.Stat_t
	for i := range 5 {
		name := path + string(rune('a'+i))
		must(t, os.WriteFile(name, make([]byte, i), 0o644))
		f, err := os.Open(name)
		must(t, err)
		defer f.Close()
		files, before = append(files, f), append(before, stat(t, name))
		must(t, os.Remove(name))
	}
	for i, f := range files {
		var st syscall.Stat_t
		must(t, syscall.Fstat(int(f.Fd()), &st))
		if st.Ino != before[i].Ino || st.Size != int64(i) || st.Nlink != 0 || st.Mtim != before[i].Mtim {
			t.Errorf("fstat after unlink: %+v, before %+v", st, before[i])
		}
	}
}

func likeLocks(t *testing.T, path string) {
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK}))
	g, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer g.Close()
	lk := syscall.Flock_t{Type: syscall.F_RDLCK}
	must(t, syscall.FcntlFlock(g.Fd(), unix.F_OFD_GETLK, &lk))
	if lk.Type != syscall.F_WRLCK {
		t.Errorf("another's lock shows as type %d", lk.Type)
	}
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	wantErrno(t, "flock by another", unix.Flock(int(g.Fd()), unix.LOCK_EX|unix.LOCK_NB), syscall.EWOULDBLOCK)
}

func likeRename(t *testing.T, path string) {
	must(t, os.WriteFile(path, []byte("source"), 0o644))
	must(t, os.WriteFile(path+".to", []byte("destination"), 0o644))
	f, err := os.Open(path + ".to")
	must(t, err)
	defer f.Close()
	from := stat(t, path)
	must(t, os.Rename(path, path+".to"))
	wantMissing(t, path)
	if st := stat(t, path+".to"); st.Ino != from.Ino {
		t.Errorf("inode %d, want %d", st.Ino, from.Ino)
	}
	var st syscall.Stat_t
	must(t, syscall.Fstat(int(f.Fd()), &st))
	if st.Nlink != 0 {
		t.Errorf("the replaced file has %d links", st.Nlink)
	}
	buf := make([]byte, 20)
	if n, _ := f.Read(buf); string(buf[:n]) != "destination" {
		t.Errorf("the replaced file reads %q", buf[:n])
	}
}
