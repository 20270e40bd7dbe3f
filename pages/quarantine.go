package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// EventKind says what an Event is about.
type EventKind string

const (
	EventQuarantined EventKind = "quarantined" // a bad object was moved away: its page is lost
	EventRemoved     EventKind = "removed"     // a bad object was removed: the quarantine is full
	EventStuck       EventKind = "stuck"       // a bad object could not be moved away
	EventReread      EventKind = "reread"      // a block was bad and, read again, right
	EventTempLeft    EventKind = "temp-left"   // a temporary file could not be removed
)

// Event is something that went wrong with stored data, for the log.
type Event struct {
	Kind  EventKind
	Key   Key    // zero if it is not about an object
	Path  string // where the file was
	Moved string // where it is now, if it was moved
	Err   error  // why
}

// DiskCounts are how often things went wrong since the tier was opened.
type DiskCounts struct {
	Lost   int64 // objects and blobs found bad
	Reread int64 // blocks that were right when they were read again
}

// Counts gives the counters.
func (d *Disk) Counts() DiskCounts {
	return DiskCounts{d.counts.lost.Load(), d.counts.reread.Load()}
}

// quarantineShare of the bound is what bad objects may take, as evidence; those
// beyond it are removed, so that they never push out good ones.
const quarantineShare = 8

// errReplaced: the bad file is not in its place any more. Trouble: the reader
// may ask again and get the new one.
var errReplaced = errors.New("object was replaced while it was read")

// condemn moves the object out of the way and says that it is lost, or that
// there is another one in its place by now.
func (o *Object) condemn(why error) error {
	d, key := o.d, o.h.key
	if !o.keyLocked {
		defer d.keys.lock(key)()
	}
	return d.condemn(objectDir(key), key.String(), key, o.dev, o.ino, why)
}

// condemn is for objects and blobs. dev and ino are those of the file that was
// found bad, or zero. What stands in the way of writers is locked by the caller.
func (d *Disk) condemn(dir, name string, key Key, dev, ino uint64, why error) error {
	path := d.path(dir, name)
	ev := Event{Kind: EventQuarantined, Key: key, Path: path, Err: why}
	lost := fmt.Errorf("%s: %w", path, why)
	if d.cfg.ReadOnly {
		d.counts.lost.Add(1)
		return lost
	}
	a := d.lockArea(dir)
	defer a.Unlock()
	st, err := d.fs.lstat(path)
	if ino != 0 && (errors.Is(err, unix.ENOENT) || err == nil && (uint64(st.Dev) != dev || st.Ino != ino)) {
		return fmt.Errorf("%s: %w", path, errReplaced)
	}
	d.counts.lost.Add(1)
	if err == nil {
		ev.Kind, ev.Moved, err = d.moveAway(a, path, name, st, why)
	}
	if err != nil {
		ev.Kind, ev.Err = EventStuck, errors.Join(why, err)
	}
	if key != (Key{}) {
		d.mu.Lock()
		d.mu.bad = append(d.mu.bad, key)
		d.mu.Unlock()
	}
	d.cfg.OnEvent(ev)
	return lost
}

// TakeBad gives the keys whose objects were found bad since the last call,
// whoever read them: what is recorded of them is wrong.
func (d *Disk) TakeBad() []Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	bad := d.mu.bad
	d.mu.bad = nil
	return bad
}

// moveAway renames the file into the quarantine, or removes it if that is full.
// The lock of the file's area is held.
func (d *Disk) moveAway(a *area, path, name string, st unix.Stat_t, why error) (kind EventKind, moved string, err error) {
	if err := d.makeArea(quarantineDir); err != nil {
		return "", "", err
	}
	q := d.lockArea(quarantineDir)
	defer q.Unlock()
	size, err := d.duEntry(filepath.Join(a.dir, name), st)
	if err != nil {
		return "", "", err
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir && d.cfg.SizeBytes > 0 {
		if !d.quarantined.known {
			if d.quarantined.bytes, err = d.duDir(quarantineDir); err != nil {
				return "", "", err
			}
			d.quarantined.known = true
		}
		if d.quarantined.bytes+size > d.cfg.SizeBytes/quarantineShare {
			if err = d.fs.remove(path); err == nil {
				d.book(a, -size)
			}
			return EventRemoved, "", err
		}
	}
	reason := "bad"
	if b := (*badObject)(nil); errors.As(why, &b) {
		reason = b.reason
	}
	moved, err = d.freeName(filepath.Join(d.path(quarantineDir), name+"."+reason))
	if err == nil {
		err = d.fs.rename(path, moved)
	}
	if err != nil {
		return "", "", err
	}
	d.book(a, -size)
	d.book(q, size)
	d.quarantined.bytes += size
	return EventQuarantined, moved, nil
}

// freeName is path, or path with something random if that is taken.
func (d *Disk) freeName(path string) (string, error) {
	_, err := d.fs.lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	return path + "." + randomHex(8), err
}
