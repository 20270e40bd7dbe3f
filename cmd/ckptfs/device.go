package main

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// device reads the kernel's requests from /dev/fuse, has go-fuse decode and the filesystem answer them, and writes the
// replies.
//
// go-fuse's own Server would do that too, but reads into memory of the Go heap that may never have been touched. If
// the daemon is killed while the kernel copies a request into such memory, the page fault fails, and the kernel
// answers that request with EIO instead of keeping it for the next daemon (fs/fuse/dev.c, fuse_dev_do_read). So
// requests are read into memory that is known to be there. Replies need no such care: their bytes were just written.
type device struct {
	fd     int
	server *fuse.Server // never serves: gives the filesystem what it needs of the kernel besides requests
	proto  *fuse.ProtocolServer
	log    *slog.Logger

	maxWrite   int
	maxReaders int32 // goroutines that wait for a request at the same time, see serveProcs
	readers    atomic.Int32
	buffers    *requestBuffers
	small      sync.Pool // *[]byte for requests and replies of up to smallBytes
	large      sync.Pool // *[]byte for longer replies

	taken atomic.Uint64 // requests read
	turn  turnstile
	left  atomic.Bool // nothing is answered any more
	once  sync.Once
	ended chan struct{} // closed when the kernel has ended the connection
}

// smallBytes holds every request but large writes, and every reply but large reads and listings.
const smallBytes = 8 << 10

// requestRoom is what a request may have in front of maxWrite bytes of data.
const requestRoom = 4096

// newDevice prepares to serve fs. server has agreed with the kernel by opts.
func newDevice(fs filesystem, server *fuse.Server, opts *fuse.MountOptions, log *slog.Logger) (*device, error) {
	d := &device{
		fd: daemonFuseFD, server: server, log: log,
		proto:      fuse.NewProtocolServer(fs, opts),
		maxWrite:   opts.MaxWrite,
		maxReaders: int32(readersFor(runtime.GOMAXPROCS(0))),
		ended:      make(chan struct{}),
	}
	d.small.New = func() any { b := make([]byte, smallBytes); return &b }
	d.large.New = func() any { b := make([]byte, d.maxWrite+requestRoom); return &b }
	var err error
	if d.buffers, err = newRequestBuffers(d.maxWrite+requestRoom, int(d.maxReaders)+1); err != nil {
		return nil, err
	}
	// go-fuse decodes by what was agreed at INIT, so it is shown the INIT once more.
	init := *server.KernelSettings()
	reply := make([]byte, smallBytes)
	n, status := d.proto.HandleRequest([][]byte{unsafe.Slice((*byte)(unsafe.Pointer(&init)), unsafe.Sizeof(init))}, [][]byte{reply})
	if err := initReply(reply[:n]).valid(); err != nil || !status.Ok() {
		return nil, fmt.Errorf("negotiating with the kernel: %w", errors.Join(err, unix.Errno(status)))
	}
	return d, nil
}

// readersFor is how many goroutines may wait for requests on a machine with so many CPUs: two more than can work at a
// time, so that one that comes back finds a place and need not end and be started again for the next request.
func readersFor(cpus int) int { return min(max(cpus, 2), 16) + 2 }

// serveProcs is the GOMAXPROCS to serve with. A goroutine in a system call keeps its P (the runtime's right to run Go
// code) for 10 ms if there are idle ones besides, and comes back with it for nothing. If there are none, the runtime's
// monitor wakes up every 20 µs to take it away, for as long as anything goes on, and every return has to look for
// another: half of the daemon's CPU time went there while pages were stored. So there is a P for each reader that waits
// and for each CPU that can work.
func serveProcs(readers, cpus int) int { return readers + cpus }

// start begins to serve.
func (d *device) start() {
	cpus := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(serveProcs(int(d.maxReaders), cpus))
	d.addReader()
}

// hold ends serving: what is being answered is finished, what comes is left to the next daemon, to which the kernel
// sends it again. It waits until nothing is being answered any more, no longer than limit, and reports whether that
// is so.
func (d *device) hold(limit time.Duration) bool { return d.turn.hold(limit) }

// leave ends answering too. What is still being answered now is also left to the next daemon.
func (d *device) leave() { d.left.Store(true) }

func (d *device) addReader() {
	d.readers.Add(1)
	go d.work()
}

// work reads and answers requests, one after the other. Whoever takes the last reader away from the device adds one.
func (d *device) work() {
	for {
		buf, err := d.buffers.take()
		n := 0
		if err == nil {
			n, err = d.read(buf)
		}
		waiting := d.readers.Add(-1)
		if err != nil {
			if !errors.Is(err, unix.ENODEV) {
				d.log.Error("requests cannot be read", "err", err)
			}
			d.once.Do(func() { close(d.ended) })
			return
		}
		d.taken.Add(1)
		if !d.turn.enter() {
			return
		}
		if waiting == 0 {
			d.addReader()
		}
		d.serve(buf, n)
		d.turn.leave()
		if d.readers.Add(1) > d.maxReaders {
			d.readers.Add(-1)
			return
		}
	}
}

// read waits for the next request. unix.ENODEV: the connection is over.
func (d *device) read(buf []byte) (int, error) {
	for {
		n, err := unix.Read(d.fd, buf)
		switch err {
		case unix.EINTR, unix.EAGAIN, unix.ENOENT: // ENOENT: the request was called back while it was being read
			continue
		case nil:
			if n < int(unsafe.Sizeof(fuse.InHeader{})) {
				return 0, fmt.Errorf("a request of %d bytes", n)
			}
		}
		return n, err
	}
}

// serve answers the request in buf[:n] and gives buf back.
func (d *device) serve(buf []byte, n int) {
	request := buf[:n]
	if n <= smallBytes {
		own := d.small.Get().(*[]byte)
		defer d.small.Put(own)
		request = append((*own)[:0], request...)
		d.buffers.put(buf)
	} else {
		defer d.buffers.put(buf)
	}
	pool := &d.small
	if replyBytes(request) > smallBytes {
		pool = &d.large
	}
	reply := pool.Get().(*[]byte)
	defer pool.Put(reply)
	m, status := d.proto.HandleRequest([][]byte{request}, [][]byte{*reply})
	if m == 0 && !status.Ok() {
		m = errorReply(*reply, request, status)
	}
	if m > 0 && !d.left.Load() {
		d.answer((*reply)[:m], request)
	}
}

func (d *device) answer(reply, request []byte) {
	for {
		_, err := unix.Write(d.fd, reply)
		switch err {
		case nil, unix.ENODEV:
		case unix.EINTR:
			continue
		case unix.ENOENT: // nobody waits for this answer any more: an interrupt that came too late, an unmount
			d.log.Debug("the kernel does not want an answer", "opcode", opcodeOf(request))
		default:
			d.log.Warn("the kernel refused an answer", "opcode", opcodeOf(request), "reply_bytes", len(reply), "err", err)
		}
		return
	}
}
