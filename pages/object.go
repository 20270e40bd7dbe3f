package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Object is one page on disk, open for reading. What it gives out has been
// checked against its checksums. Methods may be called concurrently.
type Object struct {
	d           *Disk
	f           *os.File
	h           *header
	starts      []int64 // where each block is in the file, and where the last one ends
	storedBytes int64
	ino, dev    uint64
	keyLocked   bool      // opened by a holder of the key's lock
	head        []byte    // the file's first bytes, read when it was opened, while they are of use
	buf         *ioBuffer // head's memory, if it is from the pool

	last struct { // the block that a small read touched last: readers go in sequence
		sync.Mutex
		block int
		raw   []byte
	}
}

// OpenObject opens the page's object and checks its header. ErrAbsent, ErrLost
// or trouble (see the errors).
func (d *Disk) OpenObject(key Key) (*Object, error) { return d.open(key, false, false) }

// open reads the header. For a reader of the whole page it reads the first unit,
// or all of a small page, in one go with it.
func (d *Disk) open(key Key, whole, keyLocked bool) (*Object, error) {
	path := d.ObjectPath(key)
	f, err := d.fs.open(path, unix.O_RDONLY|unix.O_DIRECT)
	o := &Object{d: d, f: f, keyLocked: keyLocked, h: &header{key: key}}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, d.confirmAbsent(err)
	case errors.Is(err, unix.ELOOP):
		return nil, o.condemn(bad("foreign", "a symbolic link"))
	case err != nil:
		return nil, err
	}
	o.last.block = -1
	if err := o.readHeader(whole); err != nil {
		if lost := (*badObject)(nil); errors.As(err, &lost) {
			err = o.condemn(err)
		}
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *Object) readHeader(whole bool) error {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(int(o.f.Fd()), &st) }); err != nil {
		return pathError(StepStat, o.f.Name(), err)
	}
	o.dev, o.ino, o.storedBytes = uint64(st.Dev), st.Ino, realBytes(st)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return bad("directory", "a directory in its place")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return bad("foreign", "mode %o", st.Mode)
	}
	if whole {
		// The header of a raw object; if this one's is longer, the first unit
		// is read again.
		head := headerBytes(blockCount(st.Size, defaultBlockBytes))
		o.buf = o.d.buffers.get()
		o.head = o.buf.b[:min(min(head, maxHeaderBytes)+ioBytes, alignUp(st.Size), bufferBytes)]
	} else {
		o.head = alignedBytes(int(min(maxHeaderBytes, alignUp(st.Size))))
	}
	n, err := o.d.fs.readAt(o.f, o.head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	o.head = o.head[:n]
	h, err := parseHeader(o.head, o.h.key, st.Size)
	if err != nil {
		return err
	}
	o.h = h
	o.starts = make([]int64, len(h.blocks)+1)
	o.starts[0] = headerBytes(int64(len(h.blocks)))
	for i, b := range h.blocks {
		o.starts[i+1] = o.starts[i] + int64(b.storedBytes)
	}
	if o.buf == nil && h.fileBytes() > int64(n) {
		o.head = nil // the first read needs more than this anyway
	}
	return nil
}

// Close gives the descriptor back. No other method may run.
func (o *Object) Close() error {
	o.d.buffers.put(o.buf)
	o.buf, o.head = nil, nil
	return o.d.fs.close(o.f)
}

// RawBytes is the page's length.
func (o *Object) RawBytes() int64 { return o.h.rawBytes }

// StoredBytes is what the object really takes on the disk.
func (o *Object) StoredBytes() int64 { return o.storedBytes }

// ReadAt is io.ReaderAt on the page. Whole blocks are read and verified before
// any byte of them is given out; ErrLost if one is not what was written.
func (o *Object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d: %w", off, unix.EINVAL)
	}
	if off >= o.h.rawBytes {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), o.h.rawBytes-off)]
	n := o.readLast(want, off)
	if rest := want[n:]; len(rest) > 0 {
		at := off + int64(n)
		first, last := int(at/o.h.blockBytes), int((at+int64(len(rest))-1)/o.h.blockBytes)
		err := o.visit(context.Background(), first, last+1, func(i int, raw []byte) error {
			start := int64(i) * o.h.blockBytes
			skip := max(at-start, 0)
			got := copy(rest[start+skip-at:], raw[skip:])
			n += got
			if skip+int64(got) < int64(len(raw)) {
				part := int64(len(raw)-1) / o.h.blockBytes
				o.keepLast(i+int(part), raw[part*o.h.blockBytes:])
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readLast serves the beginning of a read from the block read last.
func (o *Object) readLast(p []byte, off int64) int {
	o.last.Lock()
	defer o.last.Unlock()
	start := int64(o.last.block) * o.h.blockBytes
	if o.last.block < 0 || off < start || off >= start+int64(len(o.last.raw)) {
		return 0
	}
	return copy(p, o.last.raw[off-start:])
}

func (o *Object) keepLast(i int, raw []byte) {
	o.last.Lock()
	defer o.last.Unlock()
	o.last.block = i
	o.last.raw = append(o.last.raw[:0], raw...)
}

// visit calls f with the verified bytes of blocks first to end-1, in order and
// unit by unit: raw begins with block i. The bytes are f's only during the call.
func (o *Object) visit(ctx context.Context, first, end int, f func(i int, raw []byte) error) error {
	in := o.d.buffers.get()
	defer o.d.buffers.put(in)
	var out *ioBuffer // where blocks are decoded to
	defer func() { o.d.buffers.put(out) }()
	c := o.d.coders.get()
	defer o.d.coders.put(c)
	for first < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := o.unitEnd(first, end)
		stored, err := o.load(in.b, first, next)
		if err != nil {
			return err
		}
		raw := stored
		if n := min(int64(next)*o.h.blockBytes, o.h.rawBytes) - int64(first)*o.h.blockBytes; n != int64(len(stored)) {
			if out == nil {
				out = o.d.buffers.get()
			}
			raw = out.b[:n]
		}
		for i := first; i < next; i++ {
			b := stored[o.starts[i]-o.starts[first]:][:o.h.blocks[i].storedBytes]
			if err := o.block(c, i, raw[int64(i-first)*o.h.blockBytes:][:o.h.blockRawBytes(i)], b); err != nil {
				return err
			}
		}
		if err := f(first, raw); err != nil {
			return err
		}
		first = next
	}
	return nil
}

// unitEnd is the end of the unit that begins with block first. Units are the
// parts of the page of ioBytes.
func (o *Object) unitEnd(first, end int) int {
	blocks := int(ioBytes / o.h.blockBytes)
	return min((first/blocks+1)*blocks, end)
}

// load reads the stored bytes of blocks first to end-1: one aligned read, or
// none if opening the object has brought them.
func (o *Object) load(buf []byte, first, end int) ([]byte, error) {
	from, to := o.starts[first], o.starts[end]
	if to <= int64(len(o.head)) {
		if o.buf == nil { // other readers have it too
			return buf[:copy(buf, o.head[from:to])], nil
		}
		return o.head[from:to], nil
	}
	base := alignDown(from)
	b := buf[:alignUp(to)-base]
	n, err := o.d.fs.readAt(o.f, b, base)
	if int64(n) >= to-base {
		return b[from-base : to-base], nil
	}
	if err == io.EOF {
		return nil, o.condemn(bad("short", "ends at %d while it is read, should be %d", base+int64(n), to))
	}
	return nil, err
}

// block verifies one block and decodes it to raw, which may be stored itself. One
// that fails is read again by itself, past every cache, before it is believed: a
// transfer may go wrong once.
func (o *Object) block(c *coder, i int, raw, stored []byte) error {
	err := o.check(c, i, raw, stored)
	if err == nil {
		return nil
	}
	again := alignedBytes(int(alignUp(o.starts[i+1]) - alignDown(o.starts[i])))
	n, readErr := o.d.fs.readAt(o.f, again, alignDown(o.starts[i]))
	skip := o.starts[i] - alignDown(o.starts[i])
	if int64(n) < skip+int64(len(stored)) {
		if readErr != io.EOF {
			return readErr
		}
		return o.condemn(err)
	}
	if second := o.check(c, i, raw, again[skip:][:len(stored)]); second != nil {
		return o.condemn(second)
	}
	o.d.counts.reread.Add(1)
	o.d.cfg.OnEvent(Event{Kind: EventReread, Key: o.h.key, Path: o.f.Name(), Err: err})
	return nil
}

// check verifies a block and brings its raw bytes to raw, unless they are there.
func (o *Object) check(c *coder, i int, raw, stored []byte) error {
	e := o.h.blocks[i]
	if got := crc32c(stored); got != e.storedCRC {
		return bad("checksum", "block %d has checksum %08x, want %08x", i, got, e.storedCRC)
	}
	if len(stored) == len(raw) {
		if &raw[0] != &stored[0] {
			copy(raw, stored)
		}
		return nil
	}
	if err := c.decode(raw, stored, coding{o.h.codec, o.h.planes}); err != nil {
		return bad("decode", "block %d: %v", i, err)
	}
	if got := crc32c(raw); got != e.rawCRC {
		return bad("decode", "block %d decodes to checksum %08x, want %08x", i, got, e.rawCRC)
	}
	return nil
}
