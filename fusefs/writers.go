package fusefs

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/pages"
)

// closeWait bounds how long a publication waits for the release of a descriptor
// whose close has returned: the kernel sends that after the close.
const closeWait = 300 * time.Millisecond

// writerPause is how often a page is looked at that has a writer's handle and no
// writer.
const writerPause = 3 * time.Millisecond

// closedWriters wakes who waits for a writer's handle to go.
type closedWriters struct {
	mu   sync.Mutex
	wake chan struct{}
}

func (c *closedWriters) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	return c.wake
}

// writerClosed is told of every handle that is gone. A page whose writer is gone
// is looked at now, at leisure, so that publication does not have to.
func (fs *FS) writerClosed(n nodeID, wrote bool) {
	c := &fs.closed
	c.mu.Lock()
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
	c.mu.Unlock()
	if wrote {
		fs.stage.Settle(n.page())
	}
}

// Writing implements staging.Writers: it reports whether a handle on the
// ordinary path can write to the page. Handles whose I/O the kernel does itself
// are seen by their lease on the file, and not counted here: their close is told
// late.
func (fs *FS) Writing(id pages.ID) bool {
	if !fs.live.IsOpen(id) {
		return false
	}
	deadline := time.NewTimer(closeWait)
	defer deadline.Stop()
	for {
		wake := fs.closed.next()
		open, closing := fs.writersOf(pageNode(id))
		if open || !closing {
			return open
		}
		select {
		case <-wake:
		case <-deadline.C:
			return true
		}
	}
}

// writersOf looks for handles that write to the node: open ones, and ones that
// have been closed at least once and may be on their way out.
func (fs *FS) writersOf(n nodeID) (open, closing bool) {
	for _, h := range fs.handles.of(n) {
		if !h.writes() || h.how(howPassthrough) && !h.how(howCounted) {
			continue
		}
		if h.how(howFlushed) {
			closing = true
		} else {
			open = true
		}
	}
	return open, closing
}

// openWriter gives a handle that writes to a page. EROFS if the page is complete
// or published, or if somebody writes to it. A short one whose writer is gone can
// be taken up, by one at a time: a handle whose release is on its way is waited
// for, and one that the kernel has not told its caller of yet is a writer too.
func (fs *FS) openWriter(in *fuse.InHeader, n nodeID, flags uint32, staged bool) (*handle, error) {
	if h, ok := fs.openedBefore(in, n); ok {
		return fs.emptied(h, flags) // it is itself the writer that would be found
	}
	if !staged {
		return nil, syscall.EROFS
	}
	deadline := time.Now().Add(closeWait)
	for {
		wake := fs.closed.next()
		h, err := fs.takeUp(in, n, flags)
		switch {
		case err != errOldWriter:
			return h, err
		case time.Now().After(deadline):
			return nil, syscall.EROFS
		}
		select {
		case <-wake:
		case <-time.After(writerPause): // its caller may have been told
		}
	}
}

// errOldWriter says that a page has another writer's handle, but no writer.
var errOldWriter = errors.New("the handle of another writer")

func (fs *FS) takeUp(in *fuse.InHeader, n nodeID, flags uint32) (*handle, error) {
	turn := fs.takingUp.Of(n.page())
	turn.Lock()
	defer turn.Unlock()
	// A scratch file may have got its position since it was looked at.
	ref, _ := fs.stage.StagedPage(n.page())
	switch {
	case ref.Final():
		return nil, syscall.EROFS
	case ref.Scratch():
	case fs.writerOnItsWay(n):
		return nil, errOldWriter
	default:
		switch ok, err := fs.stage.Writable(ref); {
		case err != nil:
			return nil, err
		case !ok:
			return nil, syscall.EROFS
		case fs.live.IsOpen(ref.ID) && slices.ContainsFunc(fs.handles.of(n), (*handle).writes):
			return nil, errOldWriter
		}
	}
	h, err := fs.openHandle(in, n, flags, 0)
	if err != nil {
		return nil, err
	}
	if ref.Scratch() {
		// Its size may be a page's already, so that one look at the file between
		// the answer and the client's descriptor would do to seal it.
		h.setHow(howCounted)
	}
	return fs.emptied(h, flags)
}

// emptied does what O_TRUNC asks for, when the open cannot be refused any more. If
// that fails the handle is gone.
func (fs *FS) emptied(h *handle, flags uint32) (*handle, error) {
	if flags&syscall.O_TRUNC == 0 {
		return h, nil
	}
	if err := fs.stage.Truncate(h.node.page(), 0); err != nil {
		fs.dropHandle(h)
		return nil, err
	}
	return h, nil
}

// writerOnItsWay reports whether a page has a writer's handle in passthrough mode,
// but the file has no writer: the kernel has not opened it yet, or its release is
// on its way.
func (fs *FS) writerOnItsWay(n nodeID) bool {
	if !fs.live.IsOpen(n.page()) || !slices.ContainsFunc(fs.handles.of(n), func(h *handle) bool {
		return h.writes() && h.how(howPassthrough)
	}) {
		return false
	}
	busy, err := fs.ram.HasWriter(n.page())
	return err == nil && !busy
}

// truncatePage sets a staged page's size. By its name (not open) it waits for a
// writer who is on his way: his file must not be found complete before he comes.
func (fs *FS) truncatePage(n nodeID, size int64, open bool) error {
	if open {
		return fs.stage.Truncate(n.page(), size)
	}
	turn := fs.takingUp.Of(n.page())
	for deadline := time.Now().Add(closeWait); ; time.Sleep(writerPause) {
		turn.Lock()
		if !fs.writerOnItsWay(n) || time.Now().After(deadline) {
			defer turn.Unlock()
			return fs.stage.Truncate(n.page(), size)
		}
		turn.Unlock()
	}
}
