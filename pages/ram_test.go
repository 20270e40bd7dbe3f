package pages

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// mountTestRAM gives a tier on a real tmpfs of sizeBytes; where mounting is not
// permitted the test is skipped with the reason.
func mountTestRAM(t testing.TB, sizeBytes int64) *RAM {
	t.Helper()
	dir := t.TempDir()
	if err := MountRAM(dir, sizeBytes, true); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skipf("needs the privilege to mount: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := UnmountRAM(dir, true); err != nil {
			t.Error(err)
		}
	})
	return openTestRAM(t, dir)
}

func openTestRAM(t testing.TB, dir string) *RAM {
	t.Helper()
	r, err := OpenRAM(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestRAMPath(t *testing.T) {
	r := openTestRAM(t, t.TempDir())
	want := r.Dir() + "/p/ef/0123456789abcdef"
	if got := r.Path(0x0123456789abcdef); got != want {
		t.Fatalf("Path = %q, want %q", got, want)
	}
	if id, ok := parseRAMName("ef", "0123456789abcdef"); !ok || id != 0x0123456789abcdef {
		t.Fatalf("parseRAMName = %x, %v", id, ok)
	}
}

func TestRAMPageLife(t *testing.T) {
	r := openTestRAM(t, t.TempDir())
	const id = ID(42)
	if _, err := r.Open(id); !errors.Is(err, unix.ENOENT) {
		t.Fatalf("open of an absent page: %v, want ENOENT", err)
	}
	f := must(r.Create(id, 5))(t)
	if _, err := r.Create(id, 5); !errors.Is(err, unix.EEXIST) {
		t.Fatalf("second create: %v, want EEXIST", err)
	}
	must(f.WriteString("bytes"))(t)
	f.Close()
	st := must(r.Stat(id))(t)
	if st.Bytes != 5 || st.AllocatedBytes < 5 || st.Mtime == 0 {
		t.Fatalf("Stat = %+v", st)
	}
	if got := must(os.ReadFile(r.Path(id)))(t); string(got) != "bytes" {
		t.Fatalf("content %q", got)
	}
	if err := r.Truncate(id, 2); err != nil {
		t.Fatal(err)
	}
	w := must(r.OpenRW(id))(t)
	must(w.WriteAt([]byte("xy"), 2))(t)
	rd := must(r.Open(id))(t)
	defer rd.Close()
	if _, err := rd.Write([]byte("no")); !errors.Is(err, unix.EBADF) {
		t.Fatalf("write through Open: %v, want EBADF", err)
	}
	w.Close()
	kept := must(r.Remove(id))(t)
	if kept.Name == "" || kept.Bytes != 4096 {
		t.Fatalf("an open page was removed, and kept is %+v", kept)
	}
	if _, err := r.Remove(id); err != nil {
		t.Fatalf("removing an absent page: %v", err)
	}
	buf := make([]byte, 4)
	if _, err := rd.ReadAt(buf, 0); err != nil || string(buf) != "byxy" {
		t.Fatalf("an open page after its removal: %q, %v", buf, err)
	}
}

func TestRAMIsAdopted(t *testing.T) {
	r := mountTestRAM(t, 64<<20)
	if r.Kind() != RAMTmpfs {
		t.Fatalf("kind %v", r.Kind())
	}
	must(r.Create(7, 1))(t).Close()
	again := openTestRAM(t, r.Dir())
	if _, err := again.Stat(7); err != nil {
		t.Fatal(err)
	}
}

func TestRAMMounted(t *testing.T) {
	plain := t.TempDir()
	if must(Mounted(plain))(t) {
		t.Error("a plain directory is no mount")
	}
	if must(Mounted(filepath.Join(plain, "absent")))(t) {
		t.Error("an absent directory is no mount")
	}
	r := mountTestRAM(t, 32<<20)
	if !must(Mounted(r.Dir()))(t) || !IsTmpfs(r.Dir()) {
		t.Error("the tier is a tmpfs mount")
	}
	below := filepath.Join(r.Dir(), "p")
	if must(Mounted(below))(t) || !IsTmpfs(below) {
		t.Error("a directory in the tier is on a tmpfs but no mount")
	}
	var st unix.Stat_t
	if err := unix.Stat(r.Dir(), &st); err != nil || st.Mode&0o777 != 0o700 {
		t.Errorf("mode %o, %v", st.Mode, err)
	}
}

func TestRAMResize(t *testing.T) {
	r := mountTestRAM(t, 32<<20)
	must(r.Create(1, 16<<20))(t).Close()
	if err := ResizeRAM(r.Dir(), 64<<20); err != nil {
		t.Fatal(err)
	}
	used, total, err := r.Usage()
	if err != nil || total != 64<<20 || used < 16<<20 {
		t.Fatalf("after growing: %d of %d, %v", used, total, err)
	}
	if err := ResizeRAM(r.Dir(), 8<<20); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("shrinking below what is used: %v, want EINVAL", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.Dir(), &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Fatalf("a remount lost the mount's flags: %x, %v", st.Flags, err)
	}
}

func TestRAMAllocatesAtCreate(t *testing.T) {
	r := mountTestRAM(t, 64<<20)
	const pageBytes = 6893568
	f := must(r.Create(1, pageBytes))(t)
	defer f.Close()
	st := must(r.Stat(1))(t)
	if st.Bytes != 0 || st.AllocatedBytes < pageBytes {
		t.Fatalf("after Create: %+v, want size 0 and all of its storage", st)
	}
	must(r.Create(2, 4096))(t).Close()
	if st := must(r.Stat(2))(t); st.AllocatedBytes != 0 {
		t.Fatalf("a small page is allocated as it is written: %+v", st)
	}
}

func TestRAMFullLeavesNothing(t *testing.T) {
	r := mountTestRAM(t, 16<<20)
	before, _, _ := r.Usage()
	f, err := r.Create(1, 32<<20)
	if !errors.Is(err, unix.ENOSPC) || f != nil {
		t.Fatalf("Create = %v, %v; want ENOSPC", f, err)
	}
	if _, err := r.Stat(1); !errors.Is(err, unix.ENOENT) {
		t.Fatalf("the file is still there: %v", err)
	}
	if after, _, _ := r.Usage(); after != before {
		t.Fatalf("%d bytes in use after a failure, %d before", after, before)
	}
}

func TestRAMEach(t *testing.T) {
	r := openTestRAM(t, t.TempDir())
	want := map[ID]int64{}
	for i := range ID(600) {
		id := i * 0x1_0001
		f := must(r.Create(id, 1))(t)
		must(f.Write(make([]byte, i)))(t)
		f.Close()
		want[id] = int64(i)
	}
	p := filepath.Join(r.Dir(), "p")
	strange := []string{"zz", "00/short", "01/0000000000000002", "02/0000000000000a02"}
	for _, s := range strange[:3] {
		must(os.Create(filepath.Join(p, s)))(t).Close()
	}
	os.Mkdir(filepath.Join(p, strange[3]), 0o700)

	got := map[ID]int64{}
	if err := r.Each(func(id ID, st Stat) error { got[id] = st.Bytes; return nil }); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Each saw %d pages, want %d", len(got), len(want))
	}
	n := 0
	if err := r.EachForeign(func(string) error { n++; return nil }); err != nil || n != len(strange) {
		t.Errorf("%d foreign names, want %d; %v", n, len(strange), err)
	}
	stop := errors.New("stop")
	if err := r.Each(func(ID, Stat) error { return stop }); err != stop {
		t.Errorf("Each returned %v, want its function's error", err)
	}
}

func BenchmarkRAMCreateWriteRemove(b *testing.B) {
	const n = 6893568
	r := mountTestRAM(b, 256<<20)
	src := bytes.Repeat([]byte{3}, n)
	b.SetBytes(n)
	id := ID(0)
	for b.Loop() {
		id++
		f, err := r.Create(id, n)
		if err != nil {
			b.Fatal(err)
		}
		f.Write(src)
		f.Close()
		r.Remove(id)
	}
}
