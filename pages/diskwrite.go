package pages

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dirGrowthBytes is reserved with every write for what its directory may grow by.
const dirGrowthBytes = 8 << 10

// newFile says what writeFile is to make.
type newFile struct {
	dir, name string
	maxBytes  int64 // the most that the file can take
	durable   bool
	direct    bool // bypass the page cache; offsets, lengths and memory are then aligned
	fill      func(write func(b []byte, off int64) error) error
}

// writeFile is how everything gets onto the disk: temporary file in the same
// directory, write, sync (if durable), close, rename, sync directory (if
// durable). It returns the real bytes of the new file. If it fails before the
// rename nothing has changed; if syncing the directory fails the file is there
// and counted, but not known to be durable.
func (d *Disk) writeFile(ctx context.Context, n newFile) (fileBytes int64, err error) {
	if d.cfg.ReadOnly {
		return 0, &os.PathError{Op: "create", Path: d.path(n.dir, n.name), Err: unix.EROFS}
	}
	want := alignUp(n.maxBytes) + dirGrowthBytes
	if err := d.reserve(want); err != nil {
		return 0, err
	}
	defer d.acct.release(want)
	f, err := d.createTemp(n)
	if err != nil {
		return 0, err
	}
	temp := f.Name()
	defer d.forgetTemp(temp)
	err = n.fill(func(b []byte, off int64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return d.fs.writeAt(f, b, off)
	})
	if err == nil && n.durable {
		err = d.fs.sync(f)
	}
	if closeErr := d.fs.close(f); err == nil {
		err = closeErr
	}
	if err == nil {
		fileBytes, err = d.commit(temp, n, want)
	}
	if err != nil {
		d.discard(temp, n.dir)
		return 0, err
	}
	if n.durable {
		err = d.syncArea(n.dir)
	}
	return fileBytes, err
}

// reserve takes n bytes of the tier's bound and sees that the disk has them too.
func (d *Disk) reserve(n int64) error {
	if err := d.acct.reserve(n); err != nil {
		return fmt.Errorf("write of %d bytes: %w", n, err)
	}
	if d.cfg.MinFreeBytes == 0 {
		return nil
	}
	free, err := d.fs.freeBytes(d.cfg.Dir)
	if err == nil && free-d.acct.reserved() < d.cfg.MinFreeBytes {
		err = fmt.Errorf("write of %d bytes, %d are free: %w", n, free, ErrDiskMinFree)
	}
	if err != nil {
		d.acct.release(n)
	}
	return err
}

// Missing is how many bytes have to go before a write of n bytes is let in: to
// stay within the tier's bound, and to leave others on the disk what is theirs.
// Not more than 0 where there is room.
func (d *Disk) Missing(n int64) (ofBound, ofDisk int64, err error) {
	u := d.acct.usage()
	if u.SizeBytes > 0 {
		ofBound = u.UsedBytes + u.ReservedBytes + n - u.SizeBytes
	}
	if d.cfg.MinFreeBytes > 0 {
		var free int64
		free, err = d.fs.freeBytes(d.cfg.Dir)
		ofDisk = d.cfg.MinFreeBytes + u.ReservedBytes + n - free
	}
	return ofBound, ofDisk, err
}

// createTemp opens a temporary file beside where n is to be, making the
// directory if it has gone.
func (d *Disk) createTemp(n newFile) (*os.File, error) {
	temp := d.path(n.dir, fmt.Sprintf("%s%s-%d", tempPrefix, d.tag, d.tempSeq.Add(1)))
	d.mu.Lock()
	d.mu.inFlight[temp] = true
	d.mu.Unlock()
	flags := 0
	if n.direct {
		flags = unix.O_DIRECT
	}
	d.lockArea(n.dir).Unlock() // so that its bytes are known before it grows
	f, err := d.fs.create(temp, flags)
	if errors.Is(err, unix.ENOENT) {
		if err = d.makeArea(n.dir); err == nil {
			f, err = d.fs.create(temp, flags)
		}
	}
	if err != nil {
		d.forgetTemp(temp)
		return nil, err
	}
	return f, nil
}

// makeArea makes a directory of the tier, and its parent first, but never the
// tier's own: where that is gone, its disk is.
func (d *Disk) makeArea(dir string) error {
	if dir == "" {
		return d.confirmAbsent(unix.ENOENT)
	}
	if st, err := d.fs.lstat(d.path(dir)); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	parent := parentDir(dir)
	if err := d.makeArea(parent); err != nil && !errors.Is(err, ErrAbsent) {
		return err
	}
	a := d.lockArea(dir)
	err := d.fs.mkdir(d.path(dir))
	if err != nil && !errors.Is(err, os.ErrExist) {
		a.Unlock()
		return err
	}
	a.fresh.Store(err == nil || a.fresh.Load())
	d.book(a, 0)
	a.Unlock()
	p := d.lockArea(parent)
	d.book(p, 0)
	p.Unlock()
	return d.syncName(a)
}

// syncArea makes the names in a directory of the tier durable, and its own if that
// has failed when it was made.
func (d *Disk) syncArea(dir string) error {
	if err := d.fs.syncDir(d.path(dir)); err != nil {
		return err
	}
	return d.syncName(d.area(dir))
}

// syncName makes the name of a directory durable that has been made.
func (d *Disk) syncName(a *area) error {
	if !a.fresh.Load() {
		return nil
	}
	if err := d.syncArea(parentDir(a.dir)); err != nil {
		return err
	}
	a.fresh.Store(false)
	return nil
}

func (d *Disk) forgetTemp(temp string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.inFlight, temp)
}

// commit renames the temporary file to its name and books it.
func (d *Disk) commit(temp string, n newFile, want int64) (int64, error) {
	final := d.path(n.dir, n.name)
	a := d.lockArea(n.dir)
	defer a.Unlock()
	st, err := d.fs.lstat(temp)
	if err != nil {
		return 0, err
	}
	fileBytes := realBytes(st)
	if over := fileBytes - want; over > 0 { // the filesystem's own blocks, more than was thought
		if err := d.acct.reserve(over); err != nil {
			return 0, fmt.Errorf("write of %d bytes: %w", fileBytes, err)
		}
		defer d.acct.release(over)
	}
	var replaced int64
	switch old, err := d.fs.lstat(final); {
	case err == nil:
		replaced = realBytes(old)
	case !errors.Is(err, unix.ENOENT):
		return 0, err
	}
	if err := d.fs.rename(temp, final); err != nil {
		return 0, err
	}
	d.book(a, fileBytes-replaced)
	return fileBytes, nil
}

// discard removes the temporary file of a write that failed. If even that
// fails, the file is counted and CleanTemp finds it later.
func (d *Disk) discard(temp, dir string) {
	a := d.lockArea(dir)
	defer a.Unlock()
	err := d.fs.remove(temp)
	if err == nil || errors.Is(err, unix.ENOENT) {
		d.book(a, 0)
		return
	}
	var left int64
	var st unix.Stat_t
	if unix.Lstat(temp, &st) == nil {
		left = realBytes(st)
	}
	d.mu.Lock()
	d.mu.leaked[temp] = left
	d.mu.Unlock()
	d.book(a, left)
	d.cfg.OnEvent(Event{Kind: EventTempLeft, Path: temp, Err: err})
}
