package index

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// reserve is space on the database's file system that is given up when a
// deletion, or opening the database, finds it full: SQLite needs space even to
// delete, and nothing else would ever free any.
type reserve struct {
	path  string // "": there is none
	bytes int64
	held  atomic.Bool

	mu    sync.Mutex    // of release and restore
	given atomic.Uint64 // how often it was given up
}

// release gives the space up, for what failed after given was read. False if there
// is none to give, and nobody has given any since then.
func (r *reserve) release(given uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given.Load() != given {
		return true
	}
	if r.path == "" || os.Remove(r.path) != nil {
		return false
	}
	r.held.Store(false)
	r.given.Add(1)
	return true
}

// restore takes the space again if there is twice as much.
func (r *reserve) restore() error {
	if r.path == "" || r.held.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Blocks*512 >= r.bytes {
		r.held.Store(true)
		return nil
	}
	err = unix.ENOSPC
	if int64(fs.Bavail)*fs.Bsize >= 2*r.bytes {
		err = unix.Fallocate(int(f.Fd()), 0, 0, r.bytes)
	}
	if err != nil {
		return errors.Join(err, os.Remove(r.path))
	}
	r.held.Store(true)
	return nil
}

// RestoreReserve takes the space again that a deletion on a full disk has used.
// It is called every few seconds, and does nothing if it is there.
func (x *Index) RestoreReserve() error { return x.reserve.restore() }

// free is update for what deletes: it may use the reserve, which is there for all
// that find the disk full at the same time. change may be called twice.
func (x *Index) free(what string, op Op, change func(tx *conn) error, apply func()) error {
	given := x.reserve.given.Load()
	err := x.update(what, op, change, apply)
	if errors.Is(err, ErrFull) && x.reserve.release(given) {
		x.opt.Logger.Warn("the disk is full: the reserve is used to delete", "bytes", x.reserve.bytes)
		err = x.update(what, op, change, apply)
	}
	return err
}
