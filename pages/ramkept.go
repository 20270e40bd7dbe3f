package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// A page may be mapped when it is removed: a mapping outlives its descriptor, and
// its memory returns only when it is unmapped. The file of such a page is kept in
// <dir>/kept, so that what it takes still counts, over restarts too, and its end
// is seen.

// Kept is the file of a removed page that somebody still has mapped (or open).
type Kept struct {
	Name  string // in <dir>/kept
	Bytes int64  // what the tmpfs held for it when it was removed
}

// Remove takes the page's file away. If somebody still has it mapped, or that
// cannot be told now (no descriptor is left), it is kept, for Release; else its
// memory has returned and the Kept is zero. An absent page is no error.
func (r *RAM) Remove(id ID) (Kept, error) {
	name := ramName(id)
	used, st, err := r.inUse(name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		used = true
		st, _, err = r.statName(name)
	}
	if err == nil && used {
		var kept Kept
		if kept, err = r.keep(id, name); err == nil {
			kept.Bytes = st.AllocatedBytes
			return kept, nil
		}
	}
	if err == nil {
		err = retryEINTR(func() error { return unix.Unlinkat(r.pfd, name, 0) })
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return Kept{}, r.pathError("unlink", id, err)
	}
	return Kept{}, nil
}

// inUse reports whether anybody has the file open or mapped. A lease for writing
// is given only to who is alone with the file (fcntl(2), F_SETLEASE).
func (r *RAM) inUse(name string) (bool, Stat, error) {
	fd, err := retryEINTRInt(func() (int, error) {
		return unix.Openat(r.pfd, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return false, Stat{}, err
	}
	defer unix.Close(fd) // and with it the lease
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != unix.EAGAIN {
		return false, Stat{}, nil // nobody, or a filesystem that cannot tell
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, Stat{}, err
	}
	return true, statOf(&st), nil
}

func (r *RAM) keep(id ID, name string) (Kept, error) {
	for n := 0; ; n++ {
		kept := fmt.Sprintf("%016x.%d", uint64(id), n)
		err := retryEINTR(func() error {
			return unix.Renameat2(r.pfd, name, r.pfd, "../kept/"+kept, unix.RENAME_NOREPLACE)
		})
		if err != unix.EEXIST { // it came back and went again, both under a mapping
			return Kept{Name: kept}, err
		}
	}
}

// Release gives a kept file's memory back if nobody has it mapped any more.
func (r *RAM) Release(k Kept) (gone bool, err error) {
	name := "../kept/" + k.Name
	used, _, err := r.inUse(name)
	if err == nil && !used {
		err = retryEINTR(func() error { return unix.Unlinkat(r.pfd, name, 0) })
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, &os.PathError{Op: "unlink", Path: filepath.Join(r.dir, "kept", k.Name), Err: err}
	}
	return !used, nil
}

// EachKept calls f for every kept file, those of an earlier process included.
func (r *RAM) EachKept(f func(Kept) error) error {
	return eachName(filepath.Join(r.dir, "kept"), func(name string) error {
		st, _, err := r.statName("../kept/" + name)
		if err != nil {
			return fmt.Errorf("kept page %s: %w", strconv.Quote(name), err)
		}
		return f(Kept{Name: name, Bytes: st.AllocatedBytes})
	})
}
