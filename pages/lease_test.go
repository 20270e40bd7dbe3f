package pages

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// leaseTestRAM gives a tier where leases work, or skips with the reason.
func leaseTestRAM(t testing.TB) *RAM {
	r := mountTestRAM(t, 64<<20)
	must(r.Create(1<<40, 1))(t).Close()
	if _, err := r.HasWriter(1 << 40); errors.Is(err, ErrNoLeases) {
		t.Skip(err)
	}
	return r
}

// TestLeases: without the capability there are leases of one's own files only.
func TestLeases(t *testing.T) {
	r := leaseTestRAM(t)
	if !r.Leases() {
		t.Error("leases are there and not found")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can do without the capability")
	}
	got := make(chan bool)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&hdr, &caps[0]); err != nil {
			t.Error(err)
		}
		caps[0].Effective &^= 1 << unix.CAP_LEASE
		if err := unix.Capset(&hdr, &caps[0]); err != nil {
			t.Error(err)
		}
		got <- r.Leases()
	}()
	if <-got {
		t.Error("leases are found without the capability")
	}
}

func TestHasWriterSeesDescriptors(t *testing.T) {
	r := leaseTestRAM(t)
	f := must(r.Create(1, 4096))(t)
	if !must(r.HasWriter(1))(t) {
		t.Error("the creating descriptor was not seen")
	}
	f.Close()
	rd := must(r.Open(1))(t)
	defer rd.Close()
	if must(r.HasWriter(1))(t) {
		t.Error("a reader was taken for a writer")
	}
	if _, err := r.HasWriter(2); !errors.Is(err, unix.ENOENT) {
		t.Errorf("absent page: %v, want ENOENT", err)
	}
}

func TestHasWriterSeesMappings(t *testing.T) {
	r := leaseTestRAM(t)
	f := must(r.Create(1, 4096))(t)
	f.Truncate(4096)
	m := must(unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	f.Close()
	if !must(r.HasWriter(1))(t) {
		t.Error("a writable mapping that outlived its descriptor was not seen")
	}
	unix.Munmap(m)
	if must(r.HasWriter(1))(t) {
		t.Error("a writer after the mapping went")
	}
	rd := must(r.Open(1))(t)
	m = must(unix.Mmap(int(rd.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED))(t)
	rd.Close()
	if must(r.HasWriter(1))(t) {
		t.Error("a read-only mapping was taken for a writer")
	}
	unix.Munmap(m)
}

func TestHasWriterLeavesNoLease(t *testing.T) {
	r := leaseTestRAM(t)
	must(r.Create(1, 1))(t).Close()
	sigio := make(chan os.Signal, 16)
	signal.Notify(sigio, unix.SIGIO)
	defer signal.Stop(sigio)
	for range 100 {
		if must(r.HasWriter(1))(t) {
			t.Fatal("a writer where there is none")
		}
		fd, err := unix.Open(r.Path(1), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("a writer after the question: %v", err)
		}
		unix.Close(fd)
	}
	select {
	case <-sigio:
		t.Error("a lease was broken that should have been given back")
	default:
	}
}

// A writer that comes while the lease is held must only wait, and the signal
// that tells the holder must not end the program.
func TestHasWriterAgainstWriters(t *testing.T) {
	r := leaseTestRAM(t)
	must(r.Create(1, 1))(t).Close()
	done := make(chan error)
	go func() {
		for range 3000 {
			f, err := r.OpenRW(1)
			if err != nil {
				done <- err
				return
			}
			f.Close()
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			must(r.HasWriter(1))(t)
		}
	}
}

func TestHasWriters(t *testing.T) {
	r := leaseTestRAM(t)
	var ids []ID
	var open []*os.File
	for id := range ID(100) {
		f := must(r.Create(id, 1))(t)
		if id%7 == 0 {
			open = append(open, f)
		} else {
			f.Close()
		}
		ids = append(ids, id)
	}
	for i, busy := range must(r.HasWriters(ids))(t) {
		if busy != (i%7 == 0) {
			t.Errorf("page %d: busy %v", i, busy)
		}
	}
	for _, f := range open {
		f.Close()
	}
	if _, err := r.HasWriters([]ID{1, 1000}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("absent page: %v, want ENOENT", err)
	}
}

func BenchmarkHasWriter(b *testing.B) {
	r := leaseTestRAM(b)
	for b.Loop() {
		if _, err := r.HasWriter(1 << 40); err != nil {
			b.Fatal(err)
		}
	}
}
