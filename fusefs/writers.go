package fusefs

import (
	"sync"
	"syscall"
	"time"

	"ckptfs/fusefs/staging"
	"ckptfs/pages"
)

// closeWait bounds how long a publication waits for the release of a descriptor
// whose close has returned: the kernel sends that after the close.
const closeWait = 300 * time.Millisecond

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
		if !h.writes() || h.how(howPassthrough) {
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

// mayWrite refuses to open a page for writing that is complete, published, or
// being written: EROFS. A short one whose writer is gone can be taken up.
func (fs *FS) mayWrite(ref staging.PageRef, staged bool) error {
	if !staged {
		return syscall.EROFS
	}
	if ref.Scratch() {
		return nil
	}
	ok, err := fs.stage.Writable(ref)
	if err == nil && !ok {
		err = syscall.EROFS
	}
	return err
}

// mayTruncate refuses to change the size of what is complete or published.
func (fs *FS) mayTruncate(ref staging.PageRef, staged bool) error {
	if !staged || ref.Sealed() && !ref.Scratch() {
		return syscall.EROFS
	}
	return nil
}
