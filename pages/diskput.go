package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Put writes the page's object from src, which holds rawBytes, unless a sound
// one is there. When it returns without an error and durable is set, the object
// survives power loss, whoever wrote it. It returns the object's real bytes,
// those of the object that was there included. Errors of src and of the disk
// come as they are; ErrDiskBound and ErrDiskMinFree wrap ENOSPC. After an error
// nothing has changed, except that an object whose directory could not be
// synced is there, counted, and not durable.
func (d *Disk) Put(ctx context.Context, key Key, src io.ReaderAt, rawBytes int64, durable bool) (storedBytes int64, err error) {
	if rawBytes < 1 || rawBytes > MaxRawBytes {
		return 0, fmt.Errorf("put %v: page of %d bytes: %w", key, rawBytes, unix.EINVAL)
	}
	defer d.keys.lock(key)()
	storedBytes, err = d.existing(key, rawBytes)
	switch {
	case err == nil && durable:
		return storedBytes, d.syncObject(key)
	case err == nil:
		return storedBytes, nil
	case !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrLost):
		return 0, fmt.Errorf("put %v: %w", key, err)
	}
	w, err := d.newObjectWriter(key, src, rawBytes)
	if err != nil {
		return 0, fmt.Errorf("put %v: %w", key, err)
	}
	defer w.close()
	defer LongSlice()()
	storedBytes, err = d.writeFile(ctx, newFile{
		dir:      objectDir(key),
		name:     key.String(),
		maxBytes: headerBytes(int64(len(w.h.blocks))) + alignUp(rawBytes),
		durable:  durable,
		direct:   true,
		fill:     w.fill,
	})
	if err != nil {
		err = fmt.Errorf("put %v: %w", key, err)
	}
	return storedBytes, err
}

// existing gives the real bytes of a sound object of this page. An object that
// is not sound is in quarantine afterwards. The key's lock is held.
func (d *Disk) existing(key Key, rawBytes int64) (int64, error) {
	o, err := d.open(key, false, true)
	if err != nil {
		return 0, err
	}
	defer o.Close()
	if o.h.rawBytes != rawBytes {
		return 0, o.condemn(bad("length", "a page of %d bytes, should be %d", o.h.rawBytes, rawBytes))
	}
	return o.storedBytes, nil
}

// Sync makes an object that is there durable. ErrAbsent if it is not.
func (d *Disk) Sync(key Key) error {
	defer d.keys.lock(key)()
	return d.syncObject(key)
}

func (d *Disk) syncObject(key Key) error {
	f, err := d.fs.open(d.ObjectPath(key), unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		err = d.confirmAbsent(err)
	}
	if err == nil {
		err = errors.Join(d.fs.sync(f), d.fs.close(f))
	}
	if err == nil {
		err = d.syncArea(objectDir(key))
	}
	if err != nil {
		return fmt.Errorf("sync %v: %w", key, err)
	}
	return nil
}

// SyncAll makes everything durable that was put before the call, and whatever
// else is on the same filesystem. One such call is cheaper than Sync for each
// of many objects.
func (d *Disk) SyncAll() error {
	dir, err := d.fs.open(d.cfg.Dir+"/.", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("sync disk tier: %w", err)
	}
	defer dir.Close()
	return d.fs.syncAll(dir)
}

// Remove takes the object away. An absent object is no error. Readers that have
// it open finish; its space returns when the last of them closes.
func (d *Disk) Remove(key Key) error { return d.RemoveIf(key, func() bool { return true }) }

// RemoveIf is Remove if unwanted says so, which is asked while nobody else can
// put the object: a Put that comes later writes it again.
func (d *Disk) RemoveIf(key Key, unwanted func() bool) error {
	if d.cfg.ReadOnly {
		return fmt.Errorf("remove %v: %w", key, unix.EROFS)
	}
	defer d.keys.lock(key)()
	if !unwanted() {
		return nil
	}
	if err := d.removeFile(objectDir(key), key.String()); err != nil {
		return fmt.Errorf("remove %v: %w", key, err)
	}
	return nil
}

// removeFile unlinks a file of the tier and books it. Absent is no error.
func (d *Disk) removeFile(dir, name string) error {
	a := d.lockArea(dir)
	defer a.Unlock()
	path := d.path(dir, name)
	st, err := d.fs.lstat(path)
	if err == nil {
		err = d.fs.remove(path)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		d.book(a, -realBytes(st))
	}
	return err
}

// objectWriter makes one object: blocks are read, coded if that pays, gathered
// to units of ioBytes and written in sequence; the header comes last, when the
// checksums are known.
type objectWriter struct {
	d     *Disk
	src   io.ReaderAt
	h     header
	how   coding
	coder *coder
	raw   []byte // one block, where it is to be coded

	write func(b []byte, off int64) error
	buf   *ioBuffer
	n     int   // bytes in buf
	off   int64 // where buf goes in the file
}

func (d *Disk) newObjectWriter(key Key, src io.ReaderAt, rawBytes int64) (*objectWriter, error) {
	w := &objectWriter{d: d, src: src, how: coding{codecRaw, 1}}
	w.h = header{key: key, blockBytes: defaultBlockBytes, rawBytes: rawBytes}
	w.h.blocks = make([]blockEntry, blockCount(rawBytes, defaultBlockBytes))
	w.buf = d.buffers.get()
	w.coder = d.coders.get()
	if err := w.choose(); err != nil {
		w.close()
		return nil, err
	}
	w.h.codec, w.h.planes = w.how.codec, w.how.planes
	return w, nil
}

func (w *objectWriter) close() {
	w.d.buffers.put(w.buf)
	w.d.coders.put(w.coder)
}

// choose decides on the page's coding by a sample of its beginning and of its middle.
func (w *objectWriter) choose() error {
	mode := w.d.cfg.Compress
	if mode == CompressOff || w.h.rawBytes < minCompressBytes || (mode == CompressAuto && !w.d.trials.next()) {
		return nil
	}
	var samples [][]byte
	for i, off := range []int64{0, alignDown(w.h.rawBytes / 2)} {
		s := w.buf.b[i*sampleBytes:][:min(sampleBytes, w.h.rawBytes-off)]
		if err := readFull(w.src, s, off); err != nil {
			return err
		}
		samples = append(samples, s)
	}
	how, err := coding{codecRaw, 1}, error(nil)
	if mode == CompressZstd {
		how, err = chooseZstd(w.coder, samples)
	} else {
		var ratio float64
		how, ratio, err = chooseAuto(w.coder, samples)
		if !keepsUp(ratio, w.d.speed.bytesPerSec(), w.d.cpus) {
			how = coding{codecRaw, 1}
		}
		w.d.trials.result(how.codec != codecRaw)
	}
	if err == nil {
		w.how = how
	}
	return err
}

func readFull(src io.ReaderAt, b []byte, off int64) error {
	n, err := src.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes of the page at %d: %w", len(b), off, err)
}

func (w *objectWriter) fill(write func(b []byte, off int64) error) error {
	w.write = write
	w.off = headerBytes(int64(len(w.h.blocks)))
	for i := range w.h.blocks {
		if i == trialBlocks && w.h.codec != codecRaw && w.d.cfg.Compress == CompressAuto && !w.gains() {
			w.how = coding{codecRaw, 1} // the rest as it is; the object keeps its codec
		}
		if err := w.block(i); err != nil {
			return err
		}
		if w.n >= ioBytes {
			if err := w.flush(ioBytes); err != nil {
				return err
			}
		}
	}
	end := int(alignUp(int64(w.n)))
	clear(w.buf.b[w.n:end])
	if err := w.flush(end); err != nil {
		return err
	}
	head := w.buf.b[:headerBytes(int64(len(w.h.blocks)))]
	w.h.put(head)
	return w.write(head, 0)
}

// gains judges the blocks that have been coded.
func (w *objectWriter) gains() bool {
	var stored int64
	for _, b := range w.h.blocks[:trialBlocks] {
		stored += int64(b.storedBytes)
	}
	return float64(stored) < float64(trialBlocks*w.h.blockBytes)*(1-minGain)
}

// block adds block i to the buffer and to the table.
func (w *objectWriter) block(i int) error {
	n := int(w.h.blockRawBytes(i))
	to := w.buf.b[w.n : w.n+n]
	raw := to
	if w.how.codec != codecRaw {
		if w.raw == nil {
			w.raw = make([]byte, defaultBlockBytes)
		}
		raw = w.raw[:n]
	}
	if err := readFull(w.src, raw, int64(i)*w.h.blockBytes); err != nil {
		return err
	}
	e := blockEntry{storedBytes: uint32(n), rawCRC: crc32c(raw)}
	e.storedCRC = e.rawCRC
	if w.how.codec != codecRaw {
		out, err := w.coder.encode(raw, w.how)
		if err != nil {
			return err
		}
		if out == nil {
			out = raw
		}
		n = copy(to, out)
		e.storedBytes, e.storedCRC = uint32(n), crc32c(out)
	}
	w.h.blocks[i] = e
	w.n += n
	return nil
}

// flush writes the first n bytes of the buffer and moves the rest to its front.
func (w *objectWriter) flush(n int) error {
	if n == 0 {
		return nil
	}
	began := time.Now()
	if err := w.write(w.buf.b[:n], w.off); err != nil {
		return err
	}
	w.d.speed.observe(n, time.Since(began))
	w.off += int64(n)
	w.n = copy(w.buf.b, w.buf.b[n:max(n, w.n)])
	return nil
}
