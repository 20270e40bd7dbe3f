package client

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Staging is a generation being written. The open handle in it is the store
// lease: while any rank has one, the filesystem does not discard the staging.
type Staging struct {
	dir         string
	identityDir string
	handle      *os.File
	generation  string
}

// Dir returns the path of the staging directory.
func (s *Staging) Dir() string { return s.dir }

// Generation returns the name that the staging is to be published under.
func (s *Staging) Generation() string { return s.generation }

// Close ends the store lease. After a publication it was a lease on the
// generation; without one, the staging stays for the other ranks.
func (s *Staging) Close() error { return closeChecked(s.handle) }

func (s *Staging) fd() int { return int(s.handle.Fd()) }

// there reports whether the staging's name still leads to the open directory,
// and not to nothing or to a later attempt of the same name.
func (s *Staging) there() bool {
	var open unix.Stat_t
	if retry(func() error { return unix.Fstat(s.fd(), &open) }) != nil {
		return false
	}
	named, err := statAt(unix.AT_FDCWD, s.dir)
	return err == nil && named.Ino == open.Ino && named.Dev == open.Dev
}

// published reports whether the staging's generation can be seen.
func (s *Staging) published() bool {
	if s.generation == "" {
		return false
	}
	_, err := statAt(unix.AT_FDCWD, filepath.Join(s.identityDir, s.generation))
	return err == nil
}
