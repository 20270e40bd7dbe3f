package pages

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// DiskUsage is what the tier takes and may take, in bytes.
type DiskUsage struct {
	UsedBytes     int64 // real bytes: objects, blobs, quarantine, directories, leftovers
	OverheadBytes int64 // of these, what an empty tier takes too: directories, files of its own
	ReservedBytes int64 // for writes in flight: the most that they can take
	SizeBytes     int64 // the bound on both together; 0: none
}

// ContentBytes is what goes when all pages go. Never less than 0.
func (u DiskUsage) ContentBytes() int64 { return max(u.UsedBytes-u.OverheadBytes, 0) }

// account keeps the tier's real bytes. It is a plain sum that every change adds
// to, so that starting needs no scan; a recount replaces it.
type account struct {
	sizeBytes int64
	overhead  atomic.Int64 // what of used is known to be directories or files of the tier itself
	mu        struct {
		sync.Mutex
		used, reserved int64
		recount        *recount // nil unless one is under way
	}
}

// recount is a new sum in the making. Changes in an area that has been summed
// up are added to it, changes elsewhere are seen when their area's turn comes.
type recount struct {
	sum  int64
	done map[string]bool
}

func (a *account) usage() DiskUsage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return DiskUsage{a.mu.used, a.overhead.Load(), a.mu.reserved, a.sizeBytes}
}

func (a *account) set(usedBytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.used = usedBytes
}

// reserve takes n bytes of the bound for a write; ErrDiskBound if there are not
// so many. release gives them back.
func (a *account) reserve(n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sizeBytes > 0 && a.mu.used+a.mu.reserved+n > a.sizeBytes {
		return ErrDiskBound
	}
	a.mu.reserved += n
	return nil
}

func (a *account) release(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.reserved -= n
}

func (a *account) reserved() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.reserved
}

// add books a change in an area. The area's lock is held.
func (a *account) add(dir string, delta int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.used += delta
	if r := a.mu.recount; r != nil && r.done[dir] {
		r.sum += delta
	}
}

// beginRecount reports false if one is under way.
func (a *account) beginRecount() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.recount != nil {
		return false
	}
	a.mu.recount = &recount{done: map[string]bool{}}
	return true
}

// counted books an area's sum. The area's lock is held since before it was made.
func (a *account) counted(dir string, sum int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.recount.sum += sum
	a.mu.recount.done[dir] = true
}

func (a *account) hasCounted(dir string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.recount.done[dir]
}

// endRecount takes the new sum over, or drops it. It returns the difference.
func (a *account) endRecount(ok bool) (deltaBytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ok {
		deltaBytes = a.mu.recount.sum - a.mu.used
		a.mu.used = a.mu.recount.sum
	}
	a.mu.recount = nil
	return deltaBytes
}

// area is one directory of the tier. Its lock is held from before a name in it
// changes until the change is booked, so that a recount sees both or neither.
type area struct {
	sync.Mutex
	dir   string // relative to the tier; "" is the tier's own directory
	bytes int64  // what the directory itself takes, as far as it has been booked
	known bool
	fresh atomic.Bool // made, and its name not synced yet
}

func (d *Disk) area(dir string) *area {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.mu.areas[dir]
	if a == nil {
		a = &area{dir: dir}
		d.mu.areas[dir] = a
	}
	return a
}

// lockArea locks the area of dir and makes sure that its own bytes are known,
// before a change may alter them. An absent directory has none.
func (d *Disk) lockArea(dir string) *area {
	a := d.area(dir)
	a.Lock()
	if !a.known {
		st, err := d.fs.lstat(d.path(dir))
		if err == nil {
			d.setOwnBytes(a, realBytes(st))
		}
		a.known = err == nil || errors.Is(err, unix.ENOENT)
	}
	return a
}

// setOwnBytes notes what the directory itself takes. The area's lock is held.
func (d *Disk) setOwnBytes(a *area, n int64) {
	d.acct.overhead.Add(n - a.bytes)
	a.bytes, a.known = n, true
}

// book adds delta for the area's files, and whatever the directory itself has
// grown or shrunk by. The area's lock is held.
func (d *Disk) book(a *area, delta int64) {
	if st, err := d.fs.lstat(d.path(a.dir)); err == nil {
		if a.known {
			delta += realBytes(st) - a.bytes
		}
		d.setOwnBytes(a, realBytes(st))
	}
	d.acct.add(a.dir, delta)
}

// Usage is what the tier takes at this moment.
func (d *Disk) Usage() DiskUsage { return d.acct.usage() }

// SetUsage tells the tier what it holds: what Usage().UsedBytes was when it was
// last recorded. Called once, at start.
func (d *Disk) SetUsage(usedBytes int64) { d.acct.set(usedBytes) }

// SetContentBytes is SetUsage by what Usage().ContentBytes() was: directories are
// added as they are now, which takes a look at each.
func (d *Disk) SetContentBytes(n int64) error {
	areas, err := d.areas()
	if err != nil {
		return err
	}
	for _, dir := range areas {
		d.lockArea(dir).Unlock()
	}
	d.SetUsage(n + d.acct.overhead.Load())
	return nil
}

// KeepOwnBlob says that a blob is the tier's own, which is there when no page is.
// Called once, at start.
func (d *Disk) KeepOwnBlob(name string) error {
	dir, err := blobPlace(name)
	if err != nil {
		return err
	}
	return d.keepOwn(filepath.Join(dir, name))
}

func (d *Disk) keepOwn(rel string) error {
	st, err := d.fs.lstat(d.path(rel))
	if err != nil {
		return err
	}
	d.acct.overhead.Add(realBytes(st))
	return nil
}

// FreeBytes is what the disk itself has free, whatever the tier's bound.
func (d *Disk) FreeBytes() (int64, error) { return d.fs.freeBytes(d.cfg.Dir) }

// parentDir is the directory of a path relative to the tier; "" is the tier's own.
func parentDir(rel string) string { return strings.TrimSuffix(filepath.Dir(rel), ".") }

// isArea reports whether a path below the tier is a directory that is counted
// as an area of its own.
func isArea(rel string) bool {
	dir, name := filepath.Split(rel)
	switch dir {
	case "":
		return rel == "" || rel == quarantineDir || rel == blobDir || isHex(name, 2)
	case blobDir + "/":
		return isHex(name, 2)
	}
	return false
}
