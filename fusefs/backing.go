package fusefs

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// backingIDs are the kernel's names for the page files that it reads and writes
// itself (passthrough). While an inode is open, every further open must give the
// same id: another one is EIO from the kernel (fs/fuse/iomode.c). So there is one
// entry per open node, counted by its handles.
//
// An inode whose other handles are served by the daemon must not be opened so: a
// mapping of one of these would fail then, or the open itself while there is a
// mapping. They are counted too, and until they are closed all opens are ordinary.
//
// The map's lock is a leaf; an entry's own lock is held during its registration.
type backingIDs struct {
	fs *FS
	mu sync.Mutex
	m  map[nodeID]*backingEntry
	// ordinary counts the handles that the daemon serves; a node is in m or here.
	ordinary map[nodeID]int
	// off is why passthrough is not used; "" if it is.
	off string
}

type backingEntry struct {
	refs int // under backingIDs.mu
	mu   sync.Mutex
	id   int32
}

func newBackingIDs(fs *FS) *backingIDs {
	b := &backingIDs{fs: fs, m: map[nodeID]*backingEntry{}, ordinary: map[nodeID]int{}}
	if !fs.cfg.Passthrough {
		b.off = "switched off by --passthrough"
	}
	return b
}

// reason says why passthrough is not used; "" if it is.
func (b *backingIDs) reason() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.off
}

// SetPassthrough says, before the mount is served, whether the kernel moves page
// bytes itself.
func (fs *FS) SetPassthrough(on bool) {
	fs.backing.set(on)
	fs.backing.closeStray(fs.background)
}

func (b *backingIDs) set(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.fs.cfg.Passthrough:
		b.off = "switched off by --passthrough"
	case !on:
		b.off = "the kernel or the privilege is missing"
	case !b.fs.ram.Leases():
		// Who writes past the daemon is seen by them alone.
		b.off = "there are no file leases (fs.leases-enable, CAP_LEASE)"
		b.fs.log.Warn("page I/O goes through the daemon", "reason", b.off)
	default:
		b.off = ""
	}
}

// acquire gives the backing id for one more handle on the page node. 0 if the
// ordinary path is to be used; the handle is counted as such.
func (b *backingIDs) acquire(n nodeID) (int32, error) {
	b.mu.Lock()
	if b.off != "" || b.ordinary[n] > 0 {
		b.ordinary[n]++
		b.mu.Unlock()
		return 0, nil
	}
	e := b.m[n]
	if e == nil {
		e = &backingEntry{}
		b.m[n] = e
	}
	e.refs++
	b.mu.Unlock()

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.id != 0 {
		return e.id, nil
	}
	id, err := b.register(n)
	if err != nil || id == 0 {
		b.drop(n, e)
		if err == nil {
			b.adoptOrdinary(n)
		}
		return 0, err
	}
	e.id = id
	return id, nil
}

// register opens the page's file and hands it to the kernel.
func (b *backingIDs) register(n nodeID) (int32, error) {
	f, err := b.fs.ram.Open(n.page())
	if err != nil {
		return 0, err
	}
	defer f.Close()
	id, errno := b.fs.server.Load().RegisterBackingFd(&fuse.BackingMap{Fd: int32(f.Fd())})
	switch errno {
	case 0:
		return id, nil
	case syscall.EPERM, syscall.EOPNOTSUPP, syscall.ENOTTY, syscall.EINVAL, syscall.ENOSYS, syscall.ELOOP:
		b.mu.Lock()
		if b.off == "" {
			b.off = fmt.Sprintf("the kernel refused it: %v", errno)
			b.fs.log.Info("page I/O goes through the daemon", "reason", b.off)
		}
		b.mu.Unlock()
		return 0, nil
	}
	return 0, errno
}

// maxStray bounds how many ids closeStray tries: some seconds' work, beside the service.
const maxStray = 1 << 22

// closeStray has the kernel let files go that a former daemon had registered, or was about to unregister, when it was
// killed: no handle has their ids, and until the mount ends they would keep the memory of pages that are gone. The
// kernel gives ids in turn, so all of them are below the next one; those that are known are in use.
func (b *backingIDs) closeStray(ctx context.Context) {
	b.mu.Lock()
	known := make(map[int32]bool, len(b.m))
	for _, e := range b.m {
		known[e.id] = true
	}
	off := b.off
	b.mu.Unlock()
	if off != "" || b.fs.server.Load() == nil {
		return
	}
	next, err := b.probe()
	if err != nil {
		b.fs.log.Debug("the kernel's backing files cannot be looked at", "error", err)
		return
	}
	b.fs.wg.Go(func() {
		closed := 0
		for id := next - 1; id > max(0, next-maxStray) && ctx.Err() == nil; id-- {
			if !known[id] && b.fs.server.Load().UnregisterBackingFd(id) == 0 {
				closed++
			}
			if id%4096 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if closed > 0 {
			b.fs.log.Info("the kernel held page files for a former daemon", "files", closed)
		}
	})
}

// probe registers and unregisters a file, to see which id is next.
func (b *backingIDs) probe() (int32, error) {
	fd, err := unix.Open(b.fs.cfg.RAMDir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	id, errno := b.fs.server.Load().RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	if errno == 0 {
		errno = b.fs.server.Load().UnregisterBackingFd(id)
	}
	if errno != 0 {
		return 0, errno
	}
	return id, nil
}

// enterOrdinary counts a handle that the daemon is to serve. False if the node is
// open in passthrough mode.
func (b *backingIDs) enterOrdinary(n nodeID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m[n] != nil {
		return false
	}
	b.ordinary[n]++
	return true
}

// adoptOrdinary counts one that is so already.
func (b *backingIDs) adoptOrdinary(n nodeID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ordinary[n]++
}

func (b *backingIDs) leaveOrdinary(n nodeID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ordinary[n]--; b.ordinary[n] <= 0 {
		delete(b.ordinary, n)
	}
}

// adopt counts a handle of a former daemon, with the id that it got then.
func (b *backingIDs) adopt(n nodeID, id int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.m[n]
	if e == nil {
		e = &backingEntry{id: id}
		b.m[n] = e
	}
	e.refs++
}

// release ends an acquire or adopt; the last one ends the registration.
func (b *backingIDs) release(n nodeID) {
	b.mu.Lock()
	e := b.m[n]
	b.mu.Unlock()
	if e == nil {
		return
	}
	b.drop(n, e)
}

func (b *backingIDs) drop(n nodeID, e *backingEntry) {
	b.mu.Lock()
	e.refs--
	last := e.refs == 0
	if last {
		delete(b.m, n)
	}
	id := e.id
	b.mu.Unlock()
	if last && id != 0 {
		if errno := b.fs.server.Load().UnregisterBackingFd(id); errno != 0 {
			b.fs.log.Warn("the kernel kept a backing file", "id", id, "error", errno)
		}
	}
}
