package fusefs

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
	"ckptfs/pages"
)

// openHandle gives a handle on the node with its lease. pageBytes is the size of
// a page node. EMFILE if there are too many. A request sent again gets the handle that it had opened.
func (fs *FS) openHandle(in *fuse.InHeader, n nodeID, flags uint32, pageBytes int64) (*handle, error) {
	if h, ok := fs.openedBefore(in, n); ok {
		return h, nil
	}
	op, _ := opOf(in)
	if err := fs.mayOpen(n, in.Pid); err != nil {
		return nil, err
	}
	h, err := fs.handles.take(n, flags, in.Pid, op, fs.now().UnixNano())
	if err != nil {
		return nil, err
	}
	if !fs.lease(h, pageBytes) {
		fs.handles.put(h)
		return nil, syscall.ENOENT
	}
	fs.handles.commit(h)
	return h, nil
}

// openedBefore finds the handle that this very request has had from a former daemon.
func (fs *FS) openedBefore(in *fuse.InHeader, n nodeID) (*handle, bool) {
	op, again := opOf(in)
	if !again {
		return nil, false
	}
	h, ok := fs.handles.byOpID(op)
	return h, ok && h.node == n
}

// closeHandle ends a handle and what it holds.
func (fs *FS) closeHandle(number uint64) {
	h, ok := fs.handles.get(number)
	if !ok {
		return // sent again, and done before
	}
	fs.dropHandle(h)
}

// dropHandle gives back what a handle holds. The slot is given back before the
// backing id: a daemon that is killed in between leaves an id behind that nobody
// uses, not a handle whose id the kernel does not know any more.
func (fs *FS) dropHandle(h *handle) {
	h.file.close()
	h.endJob()
	if h.object != nil {
		h.object.Close()
	}
	passthrough, ordinary := h.how(howPassthrough), h.how(howOrdinary)
	wrote := h.node.kind() == kindPage && h.writes()
	fs.clients.used.Add(-h.charged)
	fs.dropSnapshot(h)
	fs.unlease(h)
	fs.handles.put(h)
	fs.writerClosed(h.node, wrote)
	switch {
	case passthrough:
		fs.backing.release(h.node)
	case ordinary:
		fs.backing.leaveOrdinary(h.node)
	}
}

// Open implements fuse.RawFileSystem.
func (fs *FS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	return status(fs.log, fs.open1(&in.InHeader, nodeID(in.NodeId), in.Flags, out))
}

func (fs *FS) open1(in *fuse.InHeader, n nodeID, flags uint32, out *fuse.OpenOut) error {
	write := flags&syscall.O_ACCMODE != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0
	switch n.kind() {
	case kindPage:
		return fs.openPage(in, n, flags, write, out)
	case kindIdentify, kindFind:
		return fs.openConversation(in, n, flags, out)
	case kindManifest, kindTokens:
		return fs.openTreeFile(in, n, flags, write, out)
	case kindDocument:
		return fs.openDocument(in, n, flags, write, out)
	case kindCommand:
		return fs.openCommand(in, flags, out)
	}
	if write {
		return syscall.EROFS
	}
	return fs.openMade(in, n, flags, out)
}

// openPage opens a page. Complete and published pages take no writers: EROFS.
func (fs *FS) openPage(in *fuse.InHeader, n nodeID, flags uint32, write bool, out *fuse.OpenOut) error {
	_, staged := fs.stage.StagedPage(n.page())
	bytes := int64(0)
	var row *index.Page
	if !staged {
		p, err := fs.idx.Page(n.page())
		switch {
		case err == nil:
			bytes, row = p.Bytes, p
		case !fs.live.Leased(n.page()):
			return err
		}
	}
	var h *handle
	var err error
	if write {
		h, err = fs.openWriter(in, n, flags, staged)
	} else {
		h, err = fs.openHandle(in, n, flags, bytes)
	}
	if err != nil {
		return err
	}
	fs.count.pageOpens.Add(1)
	for row != nil {
		inRAM, err := fs.tiers.Bring(context.Background(), row)
		if err != nil {
			fs.dropHandle(h)
			return err
		}
		if inRAM {
			break
		}
		if h.how(howOrdinary) || fs.backing.enterOrdinary(h.node) {
			return fs.openUncached(h, row, out)
		}
		runtime.Gosched() // just being closed in passthrough mode, and out of RAM already
	}
	return fs.startIO(h, !staged, out)
}

// openUncached serves a page from the disk tier, because RAM is short. The handle
// has been counted as an ordinary one.
func (fs *FS) openUncached(h *handle, row *index.Page, out *fuse.OpenOut) error {
	h.setHow(howOrdinary)
	o, err := fs.disk.OpenObject(row.Key)
	if err != nil {
		fs.dropHandle(h)
		return err
	}
	h.object = o
	h.setHow(howUncached)
	out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_NOFLUSH
	if fs.backing.reason() == "" {
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO
	}
	return nil
}

// readUncached reads from the disk tier; every byte is checked.
func (fs *FS) readUncached(h *handle, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	if h.object == nil { // opened by a former daemon
		row, err := fs.idx.Page(h.node.page())
		if err == nil {
			h.object, err = fs.disk.OpenObject(row.Key)
		}
		if err != nil {
			return nil, status(fs.log, err)
		}
	}
	n, err := h.object.ReadAt(buf[:min(len(buf), int(in.Size))], int64(in.Offset))
	if err != nil && !errors.Is(err, io.EOF) {
		fs.log.Error("a page could not be read from disk", "page", uint64(h.node.page()), "error", err)
		return nil, fuse.EIO
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// startIO chooses how the handle's reads and writes are served and says so to
// the kernel. keep: what the kernel has cached of the file is still right.
func (fs *FS) startIO(h *handle, keep bool, out *fuse.OpenOut) error {
	out.Fh = h.number()
	if h.how(howPassthrough) { // opened by this request before, sent again
		out.BackingID = h.rec.backing
		out.OpenFlags = fuse.FOPEN_PASSTHROUGH | fuse.FOPEN_NOFLUSH
		return nil
	}
	id := int32(0)
	if !h.how(howOrdinary) { // sent again too
		var err error
		if id, err = fs.backing.acquire(h.node); err != nil {
			fs.dropHandle(h)
			return err
		}
	}
	if id == 0 {
		h.setHow(howOrdinary)
		if keep {
			out.OpenFlags = fuse.FOPEN_KEEP_CACHE
		}
		if !h.writes() {
			out.OpenFlags |= fuse.FOPEN_NOFLUSH
		}
		return nil
	}
	h.rec.backing = id
	h.setHow(howPassthrough)
	out.BackingID = id
	out.OpenFlags = fuse.FOPEN_PASSTHROUGH | fuse.FOPEN_NOFLUSH
	return nil
}

// pageFile is the descriptor behind a handle on the ordinary path.
func (fs *FS) pageFile(h *handle) (*os.File, error) {
	return h.file.get(func() (*os.File, error) {
		if h.writes() {
			return fs.ram.OpenRW(h.node.page())
		}
		return fs.ram.Open(h.node.page())
	})
}

// Read implements fuse.RawFileSystem.
func (fs *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	h, ok := fs.handles.get(in.Fh)
	if !ok {
		return nil, fuse.EBADF
	}
	switch {
	case h.node.kind() == kindFind || h.node.kind() == kindIdentify:
		return fs.readConversation(h, in.Offset, buf)
	case h.node.kind() == kindCommand:
		return fs.readCommand(h, buf)
	case h.how(howUncached):
		return fs.readUncached(h, in, buf)
	case h.node.kind() == kindPage:
		f, err := fs.pageFile(h)
		if err != nil {
			return nil, status(fs.log, err)
		}
		fs.count.bytesReadOrdinary.Add(int64(in.Size))
		return fuse.ReadResultFd(f.Fd(), int64(in.Offset), int(in.Size)), fuse.OK
	}
	return fs.readFile(h, in, buf)
}

// Write implements fuse.RawFileSystem.
func (fs *FS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	fs.gate.enter()
	defer fs.gate.leave()
	h, ok := fs.handles.get(in.Fh)
	if !ok {
		return 0, fuse.EBADF
	}
	if h.node.kind() == kindFind || h.node.kind() == kindIdentify {
		return fs.writeConversation(h, &in.InHeader, in.Offset, data)
	}
	if h.node.kind() == kindCommand {
		return fs.writeCommand(h, data)
	}
	if in.Offset+uint64(len(data)) > mostBytes(h.node.kind()) {
		return 0, fuse.Status(syscall.EFBIG)
	}
	f, err := fs.writableFile(h)
	if err != nil {
		return 0, status(fs.log, err)
	}
	n, err := f.WriteAt(data, int64(in.Offset))
	if err != nil && n == 0 {
		return 0, status(fs.log, err)
	}
	return uint32(n), fuse.OK
}

func (fs *FS) writableFile(h *handle) (*os.File, error) {
	switch h.node.kind() {
	case kindPage:
		return fs.pageFile(h)
	case kindManifest, kindTokens, kindDocument:
		return fs.treeFile(h)
	}
	return nil, syscall.EBADF
}

// Release implements fuse.RawFileSystem.
func (fs *FS) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { fs.closeHandle(in.Fh) }

// Fsync implements fuse.RawFileSystem. A manifest is checked by it.
func (fs *FS) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h, ok := fs.handles.get(in.Fh)
	if !ok {
		return fuse.EBADF
	}
	if h.node.kind() == kindPage {
		return status(fs.log, fs.saveNode(h.node))
	}
	return status(fs.log, fs.check(h))
}

// Flush implements fuse.RawFileSystem: a descriptor of the handle was closed.
func (fs *FS) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	fs.gate.enter()
	defer fs.gate.leave()
	h, ok := fs.handles.get(in.Fh)
	if !ok {
		return fuse.EBADF
	}
	h.setHow(howFlushed)
	return status(fs.log, fs.check(h))
}

// adopt takes over a handle of a former daemon.
func (fs *FS) adopt(h *handle) {
	if h.node.kind() == kindPage {
		fs.adoptPageHandle(h, h.node.page())
		return
	}
	if h.node.kind() == kindFind || h.node.kind() == kindIdentify {
		h.find = &conversation{former: true}
	}
	fs.adoptSnapshot(h)
	fs.lease(h, 0)
	if h.rec.leased != 0 && h.node.kind() == kindFind {
		if fs.idx.GenerationByID(leasedID(h)) != nil && fs.leases.take(leasedID(h)) {
			h.lease.gen = leasedID(h)
		}
	}
}

func (fs *FS) adoptPageHandle(h *handle, id pages.ID) {
	switch {
	case h.how(howPassthrough):
		fs.backing.adopt(h.node, h.rec.backing)
	case h.how(howOrdinary): // one that is neither was not answered; it will be asked for again
		fs.backing.adoptOrdinary(h.node)
	}
	if d, ok := fs.stage.Maker(id); ok {
		d.Hold()
		h.lease.draft.Store(d)
		if h.writes() {
			d.Writes(h.rec.pid, id)
		}
	}
	h.lease.page = id
	if p, err := fs.idx.Page(id); err == nil {
		fs.live.Open(id, p.Bytes)
		return
	}
	if _, staged := fs.stage.StagedPage(id); staged {
		fs.live.Open(id, 0)
		return
	}
	st, err := fs.ram.Stat(id)
	if err != nil {
		return // its bytes are in the open file alone
	}
	fs.live.Adopt(id, st.Bytes)
}
