package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"ckptfs/fusefs/client"
)

// Owners, modes and mtimes are restored as far as the caller may: a restore that is not root's makes everything the
// caller's own. None of it decides whether a generation is whole, so what can't be set is left.

// copyAttr gives a path the owner, mtime and, if it is a directory, mode of what it was copied from.
func copyAttr(from fs.FileInfo, path string) {
	st, ok := from.Sys().(*syscall.Stat_t)
	if ok && os.Geteuid() == 0 && (st.Uid != 0 || st.Gid != 0) {
		_ = os.Lchown(path, int(st.Uid), int(st.Gid))
	}
	if from.IsDir() {
		_ = os.Chmod(path, from.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky))
	}
	_ = os.Chtimes(path, time.Time{}, from.ModTime())
}

// copyTreeAttr does it for the directories of a generation and its manifest.
func copyTreeAttr(from, to string, list []client.Page) {
	names := []string{"manifest.json"}
	seen := map[string]bool{}
	for _, page := range list {
		for dir := filepath.Dir(page.Path); dir != "." && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			names = append(names, dir)
		}
	}
	for _, name := range append(names, ".") { // the root last: what is set below changes its mtime
		if info, err := os.Lstat(filepath.Join(from, name)); err == nil {
			copyAttr(info, filepath.Join(to, name))
		}
	}
}

// madeDirs are the model and identity directories that a restore made, with what they were copied from.
type madeDirs []madeDir

type madeDir struct {
	from fs.FileInfo
	path string
}

// setTimes sets their attributes again: what is published in them changes their mtimes.
func (made madeDirs) setTimes() {
	for _, d := range made {
		copyAttr(d.from, d.path)
	}
}

// prepare makes the models and identities of the generations that are to be restored. One that can't be made is
// refused with all that is in it.
func (r *restore) prepare(ctx context.Context, b *backup, todo []*backupGeneration) (madeDirs, error) {
	wanted := map[*backupIdentity]bool{}
	for _, g := range todo {
		wanted[g.identity] = true
	}
	var made madeDirs
	for _, i := range b.identities {
		if !wanted[i] {
			continue
		}
		if err := r.prepareIdentity(ctx, i, &made); err != nil {
			if ctx.Err() != nil {
				return made, ctx.Err()
			}
			i.failed.Store(true)
			r.refused.add(i.path(), err)
		}
	}
	return made, nil
}

func (r *restore) prepareIdentity(ctx context.Context, i *backupIdentity, made *madeDirs) error {
	model := filepath.Join(r.mount, i.model)
	from, err := os.Lstat(filepath.Dir(i.dir))
	if err != nil {
		return err
	}
	switch err := os.Mkdir(model, from.Mode().Perm()); {
	case err == nil || errors.Is(err, fs.ErrExist) && holdsNone(model):
		// Its owner and mode before anything is in it: it may be closed to others.
		copyAttr(from, model)
		*made = append(*made, madeDir{from, model})
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	dir := r.identityDir(i)
	_, err = os.Lstat(filepath.Join(dir, "identity.json"))
	if err == nil && !holdsNone(dir) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if from, err = os.Lstat(i.dir); err != nil {
		return err
	}
	got, err := client.Identify(ctx, r.mount, i.model, i.raw)
	if err == nil && filepath.Base(got) != i.name {
		err = fmt.Errorf("the mount calls this identity %s", filepath.Base(got))
	}
	if err != nil {
		return err
	}
	copyAttr(from, dir)
	if doc, err := os.Lstat(filepath.Join(i.dir, "identity.json")); err == nil {
		copyAttr(doc, filepath.Join(dir, "identity.json"))
	}
	*made = append(*made, madeDir{from, dir})
	return nil
}

// holdsNone reports whether a directory has no directory in it. Such a model or identity is what a restore leaves that
// was killed just after it had made it.
func holdsNone(dir string) bool {
	names, err := subdirectories(dir)
	return err == nil && len(names) == 0
}
