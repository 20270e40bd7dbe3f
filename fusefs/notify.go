package fusefs

import (
	"context"
	"encoding/binary"
	"log/slog"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/pages"
)

// notifier tells the kernel what its caches must forget: names, from a goroutine
// of its own, which nobody waits for; attributes, which takes no lock in the kernel
// (fs/fuse/inode.c, fuse_reverse_inval_inode with a negative offset), and may be
// waited for by whoever serves a request.
type notifier struct {
	fd  int
	log *slog.Logger

	mu struct {
		sync.Mutex
		queue []notice
	}
	wake chan struct{}
	// epochs says that the kernel can forget all names at once
	// (FUSE_NOTIFY_INC_EPOCH, Linux 6.16), which takes no lock there. Where it can't,
	// no name is believed that may go by itself, see entryOut. The way before,
	// FUSE_NOTIFY_INVAL_ENTRY, waits for the directory's lock, and a daemon that is
	// killed there cannot die until the request that holds it is answered, which the
	// next daemon does only when this one is gone.
	epochs bool
}

// notice is a name to forget, or (name == "") attributes to forget.
type notice struct {
	node nodeID
	name string
}

func newNotifier(fd int, log *slog.Logger) *notifier {
	n := &notifier{fd: fd, log: log, wake: make(chan struct{}, 1), epochs: true}
	if fd >= 0 {
		err := n.put(header(notifyIncEpoch))
		n.epochs = err == nil || err == syscall.ENODEV
	}
	return n
}

// entry has the kernel forget a name in a directory and what is below it, and
// the directory's attributes. It does not wait.
func (n *notifier) entry(dir nodeID, name string) {
	n.mu.Lock()
	n.mu.queue = append(n.mu.queue, notice{dir, name}, notice{dir, ""})
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// attributes has the kernel forget the attributes of pages, and returns when it
// has. No lock of ours may be held.
func (n *notifier) attributes(ids []pages.ID) {
	nodes := make([]nodeID, len(ids))
	for i, id := range ids {
		nodes[i] = pageNode(id)
	}
	n.attributesOf(nodes...)
}

// attributesOf is attributes for any nodes.
func (n *notifier) attributesOf(nodes ...nodeID) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, node := range nodes {
			n.write(notice{node: node})
		}
	}()
	<-done
}

// run sends what is queued until ctx ends.
func (n *notifier) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		n.mu.Lock()
		queue := n.mu.queue
		n.mu.queue = nil
		n.mu.Unlock()
		n.send(queue)
	}
}

// send writes what was queued.
func (n *notifier) send(queue []notice) {
	names := false
	for _, x := range queue {
		if x.name == "" {
			n.write(x)
		}
		names = names || x.name != ""
	}
	if !names || !n.epochs || n.fd < 0 {
		return
	}
	if err := n.put(header(notifyIncEpoch)); err != nil && err != syscall.ENODEV {
		n.log.Warn("the kernel did not forget names that are gone", "error", err)
	}
}

// header is a notification that says nothing but its code.
func header(code uint32) []byte {
	b := make([]byte, outHeaderBytes)
	binary.LittleEndian.PutUint32(b[0:], outHeaderBytes)
	binary.LittleEndian.PutUint32(b[4:], code)
	return b
}

// put writes a message to the kernel.
func (n *notifier) put(b []byte) error {
	for {
		_, err := unix.Write(n.fd, b)
		if err != syscall.EINTR {
			return err
		}
		runtime.Gosched()
	}
}

const (
	notifyInvalInode = 2 // FUSE_NOTIFY_INVAL_INODE
	notifyIncEpoch   = 8 // FUSE_NOTIFY_INC_EPOCH
	outHeaderBytes   = 16
)

func (n *notifier) write(x notice) {
	if n.fd < 0 {
		return
	}
	switch err := n.put(x.encode()); err {
	case nil, syscall.ENOENT, syscall.ENODEV, syscall.ENOTDIR, syscall.EBADF:
		// The kernel does not know the node, or the mount is gone.
	default:
		n.log.Warn("the kernel did not take a notification", "node", uint64(x.node), "error", err)
	}
}

// encode makes the message about attributes: an out-header with the code in place
// of an errno, the node, and the range (include/uapi/linux/fuse.h).
func (x notice) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, outHeaderBytes, outHeaderBytes+24)
	b = le.AppendUint64(b, uint64(x.node))
	b = le.AppendUint64(b, ^uint64(0)) // offset -1: attributes only
	b = le.AppendUint64(b, 0)
	le.PutUint32(b[0:], uint32(len(b)))
	le.PutUint32(b[4:], notifyInvalInode)
	return b
}
