package staging

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/pages"
)

// comes is a writer that comes, and has filled the page, just after it was asked
// for.
type comes struct {
	*bench
	asked int
}

func (c *comes) Writing(id pages.ID) bool {
	if c.asked++; c.asked > 1 {
		return true
	}
	c.must(os.Truncate(c.ram.Path(id), pageBytes))
	return false
}

// TestWriterComesWithoutLeases: where the system gives no leases, a page that a
// writer fills while it is looked at is not complete.
func TestWriterComesWithoutLeases(t *testing.T) {
	b := newBench(t)
	d := b.stage("x", 1, 8)
	slot := b.missing(d)[0]
	b.must(b.writePage(d, slot, 1))
	p, name := place(d, slot)
	e, err := d.LookupAny(p, name)
	b.must(err)
	withoutLeases(t, b.ram.Path(e.Page.ID))
	if _, err := b.ram.HasWriter(e.Page.ID); !errors.Is(err, pages.ErrNoLeases) {
		t.Skip("leases are to be had: ", err)
	}
	old := b.writers
	b.writers = &comes{bench: b}
	state, err := b.inspect(e.Page.staged)
	b.writers = old
	if err != nil || state != pageWritten || e.Page.Sealed() {
		t.Errorf("state %d (%v), sealed %v", state, err, e.Page.Sealed())
	}
}

// withoutLeases has this goroutine get no lease on the file. Its thread ends with
// it.
func withoutLeases(t *testing.T, path string) {
	if err := os.Chown(path, 1, -1); err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		t.Skip(err)
	}
	caps[0].Effective &^= 1 << unix.CAP_LEASE
	if err := unix.Capset(&hdr, &caps[0]); err != nil {
		t.Skip(err)
	}
}
