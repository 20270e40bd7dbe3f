package pages

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRAMKeepsWhatIsMapped: the storage of a removed page counts until the last
// mapping of it is gone, also for a later process, and however often the page
// comes back meanwhile.
func TestRAMKeepsWhatIsMapped(t *testing.T) {
	r := mountTestRAM(t, 64<<20)
	const id, size = ID(7), 3 << 20
	var mappings [][]byte
	for range 2 {
		f := must(r.Create(id, size))(t)
		must(f.WriteAt([]byte{1}, size-1))(t)
		mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		mappings = append(mappings, mem)
		if k := must(r.Remove(id))(t); k.Name == "" || k.Bytes < size {
			t.Fatalf("a mapped page was removed, and kept is %+v", k)
		}
	}
	again := must(OpenRAM(r.Dir()))(t)
	defer again.Close()
	var all []Kept
	if err := again.EachKept(func(k Kept) error { all = append(all, k); return nil }); err != nil || len(all) != 2 {
		t.Fatalf("kept: %v, %v", all, err)
	}
	for _, k := range all {
		if gone := must(again.Release(k))(t); gone {
			t.Errorf("%s is mapped, and gone", k.Name)
		}
	}
	if used, _, _ := r.Usage(); used < 2*size {
		t.Errorf("%d bytes are taken by two mapped pages of %d", used, size)
	}
	for _, mem := range mappings {
		if mem[size-1] != 1 {
			t.Error("a mapped byte has changed")
		}
		if err := unix.Munmap(mem); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range all {
		if gone := must(again.Release(k))(t); !gone {
			t.Errorf("%s is not mapped, and not gone", k.Name)
		}
	}
	f := must(r.Create(id, 100))(t)
	f.Close()
	if k := must(r.Remove(id))(t); k.Name != "" {
		t.Errorf("a page that nobody has was kept: %+v", k)
	}
	if used, _, _ := r.Usage(); used >= size {
		t.Errorf("%d bytes are still taken", used)
	}
}

// TestRemoveWithoutDescriptors: a page goes though no file can be opened to see
// whether somebody has it mapped; that is found out later.
func TestRemoveWithoutDescriptors(t *testing.T) {
	r := mountTestRAM(t, 16<<20)
	f := must(r.Create(1, 0))(t)
	must(f.Write(make([]byte, 10_000)))(t)
	limit := unix.Rlimit{}
	if err := errors.Join(f.Close(), unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	k, err := r.Remove(1)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err != nil || k.Bytes < 10_000 {
		t.Fatalf("%+v, %v", k, err)
	}
	if _, err := r.Stat(1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("it is there: %v", err)
	}
	if gone, err := r.Release(k); !gone || err != nil {
		t.Errorf("gone: %v, %v", gone, err)
	}
}
