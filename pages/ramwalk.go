package pages

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// walkBatch is how many names are read from a directory at a time.
const walkBatch = 1024

// Each calls f for every page file in the tier, in no order, and stops at f's
// first error, which it returns. Names that are not pages are passed over
// (EachForeign reports them). Pages that come or go meanwhile may be missed.
func (r *RAM) Each(f func(ID, Stat) error) error {
	return r.walk(f, func(string) error { return nil })
}

// RAMAreas is how many directories the page files are spread over.
const RAMAreas = 256

// IDs lists the pages whose files are in one of the RAMAreas directories.
func (r *RAM) IDs(area int) (ids []ID, err error) {
	sub := fmt.Sprintf("%02x", area)
	err = eachName(filepath.Join(r.dir, "p", sub), func(name string) error {
		if id, ok := parseRAMName(sub, name); ok {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// EachForeign calls f with the path of everything below p/ that is not a page
// file of this tier. Called by check.
func (r *RAM) EachForeign(f func(path string) error) error {
	return r.walk(func(ID, Stat) error { return nil }, f)
}

func (r *RAM) walk(page func(ID, Stat) error, foreign func(string) error) error {
	p := filepath.Join(r.dir, "p")
	return eachName(p, func(sub string) error {
		if !isHex(sub, 2) {
			return foreign(filepath.Join(p, sub))
		}
		var fErr error // page's or foreign's own, whatever it is
		err := eachName(filepath.Join(p, sub), func(name string) error {
			id, ok := parseRAMName(sub, name)
			if !ok {
				fErr = foreign(filepath.Join(p, sub, name))
				return fErr
			}
			st, regular, err := r.statName(sub + "/" + name)
			switch {
			case err == unix.ENOENT:
				return nil // gone meanwhile
			case err != nil:
				return r.pathError("stat", id, err)
			case !regular:
				fErr = foreign(filepath.Join(p, sub, name))
			default:
				fErr = page(id, st)
			}
			return fErr
		})
		if fErr == nil && errors.Is(err, unix.ENOTDIR) {
			return foreign(filepath.Join(p, sub))
		}
		return err
	})
}

func parseRAMName(sub, name string) (ID, bool) {
	if !isHex(name, 16) || name[14:] != sub {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 16, 64)
	return ID(n), err == nil
}

// isHex reports whether s is n lower-case hex digits.
func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// eachName calls f for every name in dir, without holding all of them.
func eachName(dir string, f func(name string) error) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(walkBatch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
