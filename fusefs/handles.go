package fusefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/index"
	"ckptfs/pages"
)

// slotRecord is one open handle in the table on the RAM tier. The table is
// mapped, so what is written here outlives the daemon; it is what makes an open
// file a lease that a killed daemon does not lose. Fields in use are written
// before state says so.
type slotRecord struct {
	state   uint32 // 0 free, 1 in use
	flags   uint32 // open(2) flags
	node    uint64
	seq     uint32 // of this use of the slot; part of the handle's number
	pid     uint32
	opened  int64  // ns since 1970
	op      uint64 // request that opened it
	backing int32  // passthrough backing id, 0 none
	how     uint32 // handleHow bits
	leased  uint64 // generation (.find) or identity (.identify) that was answered last
	base    uint64 // file offset at which that answer begins
}

// handleHow says how a handle is served.
const (
	howPassthrough = 1 << iota // the kernel does its I/O itself
	howFlushed                 // closed at least once (ordinary path)
	howUncached                // read from the disk tier
	howOrdinary                // a page that the daemon serves, see backingIDs
	howCounted                 // its page has a writer as long as the handle is there, whatever the file says
)

const (
	tableMagic   = 0x31746c6268706b63 // "ckphblt1"
	tableHeader  = 64
	slotBytes    = int(unsafe.Sizeof(slotRecord{}))
	defaultSlots = 65536
)

// handleTable is the table of open handles. Slots are taken from a free list
// under a leaf lock; each handle is then its owner's.
//
// Memory: each slot takes 64 bytes in the file and 12 here (live and free),
// whether it is in use or not: 5 MB for the default of 65,536. An open handle
// takes 128 bytes more, and the first one on a page in passthrough mode 32 and a
// place in a map. What a handle holds beside, requests and answers, is counted
// and bounded, see maxClientBytes.
type handleTable struct {
	mem   []byte
	slots []slotRecord
	live  []atomic.Pointer[handle]

	mu struct {
		sync.Mutex
		free []int32
		byOp map[uint64]int32 // only handles that a former daemon made
	}
	open atomic.Int64
	used atomic.Int32 // slots below this have been in use; the free list gives low ones first
}

// openTable maps the table in dir, made anew if fresh. slots bounds the handles.
func openTable(dir string, slots int, fresh bool) (*handleTable, error) {
	path := filepath.Join(dir, "handles")
	if fresh {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("handle table: %w", err)
	}
	defer f.Close()
	size := tableHeader + slots*slotBytes
	if err := f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("handle table: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("handle table: %w", err)
	}
	magic := (*uint64)(unsafe.Pointer(&mem[0]))
	if *magic != 0 && *magic != tableMagic {
		unix.Munmap(mem)
		return nil, fmt.Errorf("handle table %s is not one of ours", path)
	}
	*magic = tableMagic
	t := &handleTable{mem: mem, live: make([]atomic.Pointer[handle], slots)}
	t.slots = unsafe.Slice((*slotRecord)(unsafe.Pointer(&mem[tableHeader])), slots)
	t.mu.byOp = map[uint64]int32{}
	for i := slots - 1; i >= 0; i-- {
		if t.slots[i].state == 0 {
			t.mu.free = append(t.mu.free, int32(i))
		}
	}
	return t, nil
}

func (t *handleTable) close() error { return unix.Munmap(t.mem) }

// handle is an open file or directory.
type handle struct {
	slot int32
	rec  *slotRecord
	node nodeID

	file  lazyFile      // ordinary path, and files that are no pages
	find  *conversation // .find and .identify
	bytes []byte        // what a made file said when it was opened
	job   *job          // .ckptfs/control: the order; under file.mu

	charged int64 // bytes of memory it holds; a conversation's lock guards it, else nobody changes it but open and release
	kept    int64 // bytes of its snapshot in the RAM tier

	object *pages.Object // howUncached; under file.mu

	lease handleLease
}

func (h *handle) number() uint64 { return uint64(uint32(h.slot)) | uint64(h.rec.seq)<<32 }

func (h *handle) writes() bool { return h.rec.flags&syscall.O_ACCMODE != syscall.O_RDONLY }

func (h *handle) how(bit uint32) bool { return atomic.LoadUint32(&h.rec.how)&bit != 0 }

func (h *handle) setHow(bit uint32) { atomic.OrUint32(&h.rec.how, bit) }

// take gives a new handle for the node. EMFILE if there are no more.
func (t *handleTable) take(node nodeID, flags, pid uint32, op index.Op, now int64) (*handle, error) {
	t.mu.Lock()
	n := len(t.mu.free)
	if n == 0 {
		t.mu.Unlock()
		return nil, syscall.EMFILE
	}
	slot := t.mu.free[n-1]
	t.mu.free = t.mu.free[:n-1]
	t.mu.Unlock()
	r := &t.slots[slot]
	*r = slotRecord{seq: r.seq + 1, node: uint64(node), flags: flags, pid: pid, op: uint64(op), opened: now}
	h := &handle{slot: slot, rec: r, node: node}
	t.enter(h)
	return h, nil
}

// enter makes the handle known.
func (t *handleTable) enter(h *handle) {
	t.live[h.slot].Store(h)
	t.open.Add(1)
	for used := t.used.Load(); h.slot >= used && !t.used.CompareAndSwap(used, h.slot+1); used = t.used.Load() {
	}
}

// commit makes the handle outlive this daemon; its lease has been taken.
func (t *handleTable) commit(h *handle) { atomic.StoreUint32(&h.rec.state, 1) }

// get finds an open handle by its number.
func (t *handleTable) get(number uint64) (*handle, bool) {
	slot := uint32(number)
	if int(slot) >= len(t.slots) {
		return nil, false
	}
	h := t.live[slot].Load()
	if h == nil || h.rec.seq != uint32(number>>32) {
		return nil, false
	}
	return h, true
}

// put gives the handle's slot back.
func (t *handleTable) put(h *handle) {
	atomic.StoreUint32(&h.rec.state, 0)
	t.live[h.slot].Store(nil)
	t.open.Add(-1)
	t.mu.Lock()
	t.mu.free = append(t.mu.free, h.slot)
	t.mu.Unlock()
}

// recovered enters the handles that a former daemon had open and calls adopt
// for each, which takes its leases again.
func (t *handleTable) recovered(adopt func(*handle)) {
	for i := range t.slots {
		if t.slots[i].state != 1 {
			continue
		}
		h := &handle{slot: int32(i), rec: &t.slots[i], node: nodeID(t.slots[i].node)}
		t.enter(h)
		if h.rec.op != 0 {
			t.mu.byOp[h.rec.op] = h.slot
		}
		adopt(h)
	}
}

// byOpID finds the handle that this very request opened before the daemon was
// replaced.
func (t *handleTable) byOpID(op index.Op) (*handle, bool) {
	t.mu.Lock()
	slot, ok := t.mu.byOp[uint64(op)]
	t.mu.Unlock()
	if !ok {
		return nil, false
	}
	h := t.live[slot].Load()
	return h, h != nil && h.rec.op == uint64(op)
}

// of lists the open handles on a node.
func (t *handleTable) of(n nodeID) []*handle {
	var hs []*handle
	t.each(func(h *handle) {
		if h.node == n {
			hs = append(hs, h)
		}
	})
	return hs
}

// each calls fn for every open handle.
func (t *handleTable) each(fn func(*handle)) {
	for i := range t.used.Load() {
		if h := t.live[i].Load(); h != nil {
			fn(h)
		}
	}
}

// lazyFile is a descriptor that is opened when it is first needed, which may be
// by the next daemon.
type lazyFile struct {
	mu sync.Mutex
	f  *os.File
}

func (l *lazyFile) get(open func() (*os.File, error)) (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		return l.f, nil
	}
	f, err := open()
	if err == nil {
		l.f = f
	}
	return f, err
}

func (l *lazyFile) set(f *os.File) { l.mu.Lock(); l.f = f; l.mu.Unlock() }

// opened is the descriptor if there is one already.
func (l *lazyFile) opened() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f
}

// stat looks at the file if it is open here.
func (l *lazyFile) stat() (os.FileInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil, os.ErrNotExist
	}
	return l.f.Stat()
}

func (l *lazyFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
}
