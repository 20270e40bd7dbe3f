package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// Abandon gives the staging up: rm -r of its directory. It does nothing if the
// staging was published, or if its name belongs to a later attempt by now.
func (s *Staging) Abandon() error {
	if !s.there() {
		return nil
	}
	err := s.removeContents(".")
	if err == nil {
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
		names, err := s.list(dir)
		if err != nil || len(names) == 0 {
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
	err := unlinkAt(s.fd(), path, 0)
	if !isErrno(err, unix.EISDIR) {
		return err
	}
	if err := s.removeContents(path); err != nil {
		return err
	}
	return unlinkAt(s.fd(), path, unix.AT_REMOVEDIR)
}

// list returns the names in a directory; one that is gone has none.
func (s *Staging) list(dir string) ([]string, error) {
	f, err := openAt(s.fd(), dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
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
