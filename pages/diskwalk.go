package pages

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ObjectInfo is one object as a walk finds it.
type ObjectInfo struct {
	Key         Key
	StoredBytes int64 // real bytes
	RawBytes    int64 // 0 if Err is set
	Err         error // why its header cannot be believed or read
}

// Each calls f for every object, its header read and checked, in no order, and
// stops at f's first error. It changes nothing: a bad object is reported and
// stays. For a rebuild or a check of a tier of any size; reads one block of
// maxHeaderBytes an object.
func (d *Disk) Each(ctx context.Context, f func(ObjectInfo) error) error {
	return d.EachKey(ctx, func(key Key, storedBytes int64) error {
		info := ObjectInfo{Key: key, StoredBytes: storedBytes}
		file, err := d.fs.open(d.ObjectPath(key), unix.O_RDONLY|unix.O_DIRECT)
		if errors.Is(err, unix.ENOENT) {
			return nil // gone meanwhile
		}
		if err == nil {
			o := &Object{d: d, f: file, h: &header{key: key}}
			err = errors.Join(o.readHeader(false), o.Close())
			info.RawBytes = o.h.rawBytes
		}
		info.Err = err
		return f(info)
	})
}

// EachKey is Each without a look at the objects themselves: names and real
// bytes only, about 2 µs an object once the directories are in memory.
func (d *Disk) EachKey(ctx context.Context, f func(key Key, storedBytes int64) error) error {
	return d.eachFile(ctx, func(rel string, st unix.Stat_t) error {
		dir, name := filepath.Split(rel)
		key, err := ParseKey(name)
		if err != nil || dir != objectDir(key)+"/" {
			return nil
		}
		return f(key, realBytes(st))
	})
}

// EachForeign calls f with every path in the tier, relative to it, that is
// neither an object, a blob, a temporary file nor one of the tier's own. Called
// by check. What is in quarantine is not foreign.
func (d *Disk) EachForeign(ctx context.Context, f func(rel string) error) error {
	return d.eachFile(ctx, func(rel string, st unix.Stat_t) error {
		dir, name := filepath.Split(rel)
		if rel == tierFile || dir == quarantineDir+"/" || strings.HasPrefix(name, tempPrefix) {
			return nil
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			if key, err := ParseKey(name); err == nil && dir == objectDir(key)+"/" {
				return nil
			}
			if want, err := blobPlace(name); err == nil && dir == want+"/" {
				return nil
			}
		}
		return f(rel)
	})
}

// eachFile calls f for what is directly in each area, areas excepted.
func (d *Disk) eachFile(ctx context.Context, f func(rel string, st unix.Stat_t) error) error {
	areas, err := d.areas()
	if err != nil {
		return err
	}
	for _, dir := range areas {
		if err := d.eachIn(ctx, dir, f); err != nil {
			return err
		}
	}
	return nil
}

func (d *Disk) eachIn(ctx context.Context, dir string, f func(rel string, st unix.Stat_t) error) error {
	var fErr error // f's own, which may well be an ENOENT
	err := d.fs.eachName(d.path(dir), func(name string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		rel := filepath.Join(dir, name)
		if isArea(rel) {
			return nil
		}
		st, err := d.fs.lstat(d.path(rel))
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err == nil {
			fErr = f(rel, st)
			err = fErr
		}
		return err
	})
	if fErr != nil {
		return fErr
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // the directory went, or is none
	}
	return err
}

// areas lists the tier's directories, its own first.
func (d *Disk) areas() ([]string, error) {
	list := []string{""}
	for _, parent := range []string{"", blobDir} {
		err := d.fs.eachName(d.path(parent), func(name string) error {
			if rel := filepath.Join(parent, name); isArea(rel) {
				list = append(list, rel)
			}
			return nil
		})
		if err != nil && !(parent != "" && errors.Is(err, unix.ENOENT)) {
			return nil, err
		}
	}
	return list, nil
}

// duDir sums a directory's real bytes, all that is below it included, its own not.
func (d *Disk) duDir(rel string) (sum int64, err error) {
	err = d.eachIn(context.Background(), rel, func(rel string, st unix.Stat_t) error {
		n, err := d.duEntry(rel, st)
		sum += n
		return err
	})
	return sum, err
}

func (d *Disk) duEntry(rel string, st unix.Stat_t) (int64, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return realBytes(st), nil
	}
	below, err := d.duDir(rel)
	return realBytes(st) + below, err
}

// CleanTemp removes temporary files that no write of this opening is using:
// those of a process that was killed, and those that could not be removed when
// their write failed. It returns how many, and goes on after an error.
func (d *Disk) CleanTemp(ctx context.Context) (removed int, err error) {
	if d.cfg.ReadOnly {
		return 0, unix.EROFS
	}
	var errs []error
	walkErr := d.eachFile(ctx, func(rel string, _ unix.Stat_t) error {
		if strings.HasPrefix(filepath.Base(rel), tempPrefix) {
			a := d.lockArea(parentDir(rel))
			defer a.Unlock()
			if gone, err := d.cleanOne(a, rel); err != nil {
				errs = append(errs, err)
			} else if gone {
				removed++
			}
		}
		return nil
	})
	return removed, errors.Join(append(errs, walkErr)...)
}

// cleanOne removes a temporary file if no write is using it. The area's lock is held.
func (d *Disk) cleanOne(a *area, rel string) (gone bool, err error) {
	temp := d.path(rel)
	d.mu.Lock()
	busy, booked := d.mu.inFlight[temp], d.mu.leaked[temp]
	d.mu.Unlock()
	if busy {
		return false, nil
	}
	if err := d.fs.remove(temp); err != nil {
		return false, err
	}
	d.mu.Lock()
	delete(d.mu.leaked, temp)
	d.mu.Unlock()
	d.book(a, -booked)
	return true, nil
}

// Recount walks the whole tier, removes what temporary files it finds unused,
// and replaces the sum of real bytes by what is there. The tier is in use
// meanwhile; only one directory at a time is closed to changes. It returns by
// how much the sum was wrong. Called in the background after every start.
func (d *Disk) Recount(ctx context.Context) (deltaBytes int64, err error) {
	if !d.acct.beginRecount() {
		return 0, errors.New("a recount is under way")
	}
	areas, err := d.areas()
	for err == nil && len(areas) > 0 {
		for n := 0; n < len(areas) && err == nil; n++ {
			err = d.recountArea(ctx, areas[n])
		}
		if err == nil {
			areas, deltaBytes = d.endRecount()
		}
	}
	if err != nil {
		d.acct.endRecount(false)
	}
	return deltaBytes, err
}

// endRecount takes the new sum over, unless there are areas that were made
// meanwhile: it lists them.
func (d *Disk) endRecount() (more []string, deltaBytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for dir := range d.mu.areas {
		if !d.acct.hasCounted(dir) {
			more = append(more, dir)
		}
	}
	if len(more) == 0 {
		deltaBytes = d.acct.endRecount(true)
	}
	return more, deltaBytes
}

func (d *Disk) recountArea(ctx context.Context, dir string) error {
	a := d.area(dir)
	a.Lock()
	defer a.Unlock()
	var sum int64
	err := d.eachIn(ctx, dir, func(rel string, st unix.Stat_t) error {
		n, err := d.duEntry(rel, st)
		if err != nil {
			return err
		}
		if strings.HasPrefix(filepath.Base(rel), tempPrefix) {
			return d.recountTemp(a, rel, n, &sum)
		}
		sum += n
		return nil
	})
	if err != nil {
		return err
	}
	st, err := d.fs.lstat(d.path(dir))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	d.setOwnBytes(a, realBytes(st))
	if dir == quarantineDir {
		d.quarantined.bytes, d.quarantined.known = sum, true
	}
	d.acct.counted(dir, sum+a.bytes)
	return nil
}

// recountTemp removes an unused temporary file; one that stays is counted, one
// that is being written is not: its reservation is.
func (d *Disk) recountTemp(a *area, rel string, n int64, sum *int64) error {
	temp := d.path(rel)
	if !d.cfg.ReadOnly {
		if gone, err := d.cleanOne(a, rel); gone || err == nil {
			return nil
		}
	}
	d.mu.Lock()
	d.mu.leaked[temp] = n
	d.mu.Unlock()
	*sum += n
	return nil
}
