package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// Abandon gives the staging up: rm -r of its directory. It does nothing if the
// staging was published, or if its name belongs to a later attempt by now.
//
// Everything is removed by its path. The open directory is the generation once
// another rank has published it, and what is unlinked there retires it.
func (s *Staging) Abandon() error {
	if !s.there() {
		return nil
	}
	err := s.removeContents(s.dir)
	if err == nil && s.there() {
		err = unlinkAt(unix.AT_FDCWD, s.dir, unix.AT_REMOVEDIR)
	}
	if err != nil && s.there() {
		return s.fail("abandon", err)
	}
	return nil
}

// emptyTries bounds how often a directory is emptied into which others write.
const emptyTries = 100

// removeContents empties a directory of the staging. Other ranks may remove or
// add names meanwhile, so it looks again until nothing is left.
func (s *Staging) removeContents(dir string) error {
	for range emptyTries {
		names, err := list(dir)
		if err != nil || len(names) == 0 || !s.there() {
			return err
		}
		for _, name := range names {
			if err := s.remove(dir + "/" + name); err != nil {
				return err
			}
		}
	}
	return &os.PathError{Op: "empty", Path: dir, Err: unix.ENOTEMPTY}
}

func (s *Staging) remove(path string) error {
	err := unlinkAt(unix.AT_FDCWD, path, 0)
	if !isErrno(err, unix.EISDIR) {
		return err
	}
	if err := s.removeContents(path); err != nil {
		return err
	}
	return unlinkAt(unix.AT_FDCWD, path, unix.AT_REMOVEDIR)
}

// removePage removes a page that this process has begun and can't finish, so
// that it is in nobody's way. What another rank has put in its place since, and
// what is published, is left alone.
func (s *Staging) removePage(path string, f *os.File) {
	path = s.dir + "/" + path
	var begun unix.Stat_t
	named, err := statAt(unix.AT_FDCWD, path)
	if err == nil {
		err = retry(func() error { return unix.Fstat(int(f.Fd()), &begun) })
	}
	if err == nil && named.Ino == begun.Ino && named.Dev == begun.Dev {
		_ = unlinkAt(unix.AT_FDCWD, path, 0)
	}
}

// list returns the names in a directory; one that is gone has none.
func list(dir string) ([]string, error) {
	f, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	var names []string
	if err == nil {
		defer f.Close()
		names, err = f.Readdirnames(-1)
	}
	if isGone(err) {
		return nil, nil
	}
	return names, err
}
