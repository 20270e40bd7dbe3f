package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Loading is a page on its way from the disk tier. It gets its place among the
// pages only when it is whole: a page file is complete or is being written by
// its staging, never half loaded.
type Loading struct {
	*os.File
	ram *RAM
	id  ID
}

func (r *RAM) loadPath(id ID) string {
	return filepath.Join(r.dir, "l", fmt.Sprintf("%016x", uint64(id)))
}

// BeginLoad makes an empty file for the page with all its storage. ENOSPC leaves
// nothing behind.
func (r *RAM) BeginLoad(id ID, sizeBytes int64) (*Loading, error) {
	path := r.loadPath(id)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	l := &Loading{f, r, id}
	if sizeBytes >= hugeMinBytes {
		if err := allocate(int(f.Fd()), sizeBytes); err != nil {
			l.Abort()
			return nil, r.pathError("fallocate", id, err)
		}
	}
	return l, nil
}

// Commit closes the file and puts the page in its place.
func (l *Loading) Commit() error {
	if err := l.Close(); err != nil {
		l.Abort()
		return err
	}
	if err := retryEINTR(func() error { return unix.Rename(l.ram.loadPath(l.id), l.ram.Path(l.id)) }); err != nil {
		l.Abort()
		return l.ram.pathError("rename", l.id, err)
	}
	return nil
}

// Abort removes what was loaded.
func (l *Loading) Abort() {
	l.Close()
	os.Remove(l.ram.loadPath(l.id))
}

// ClearLoads removes what a former process was loading.
func (r *RAM) ClearLoads() error { return os.RemoveAll(filepath.Join(r.dir, "l")) }
