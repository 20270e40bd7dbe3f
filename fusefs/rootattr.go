package fusefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/index"
)

// rootAttr is the owner and mode of the mount's root directory, kept in a small
// file of the state directory once they have been set.
type rootAttr struct {
	path string
	mu   sync.Mutex // of who sets them
	attr atomic.Pointer[index.Attr]
}

func (r *rootAttr) open(path string, now time.Time) error {
	r.path = path
	a := index.Attr{Mode: 0o755, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Mtime: now.UnixNano()}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.attr.Store(&a)
	return nil
}

// Attr is what the root has now.
func (r *rootAttr) Attr() index.Attr { return *r.attr.Load() }

// Touch moves the root's mtime: a model came or went.
func (r *rootAttr) Touch(ns int64) {
	_ = r.Set(func(a index.Attr) index.Attr {
		a.Mtime = ns
		return a
	}) // of no consequence beyond an mtime
}

// Set changes the attributes and keeps them.
func (r *rootAttr) Set(change func(index.Attr) index.Attr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := change(r.Attr())
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path+".tmp", raw, 0o600); err != nil {
		return err
	}
	if err := os.Rename(r.path+".tmp", r.path); err != nil {
		return err
	}
	r.attr.Store(&a)
	return nil
}
