package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// abandonedAfter is how long an incomplete page of another writer may stand
// still before it counts as left behind by a dead one and is written anew.
const abandonedAfter = 2 * time.Second

// copyBufferBytes is the size of the writes of CopyPage: few calls, and little
// enough to stay in a processor's cache between read and write.
const copyBufferBytes = 1 << 20

// WritePage writes a page in one call; its length must be the group's
// page_bytes. It returns false if the page is there already, by another
// generation, staging or rank: then nothing was written and nothing is missing.
//
// A page that another process began and left incomplete is removed and written
// again. Pages may be written by several goroutines.
func (s *Staging) WritePage(ctx context.Context, path string, content []byte) (bool, error) {
	return s.CopyPage(ctx, path, int64(len(content)), bytes.NewReader(content))
}

// CopyPage is WritePage with content from a reader, of which it takes exactly
// the given bytes; it reads nothing if the page is there already.
func (s *Staging) CopyPage(ctx context.Context, path string, sizeBytes int64, content io.Reader) (bool, error) {
	f, err := s.createPage(ctx, path, sizeBytes, unix.O_WRONLY)
	if f == nil {
		return false, err
	}
	if err = fill(ctx, f, sizeBytes, content); err != nil {
		err = s.fail("write page "+path+" of", err)
		s.removePage(path, f)
		f.Close()
		return false, err
	}
	if err = closeChecked(f); err != nil {
		return false, s.fail("write page "+path+" of", err)
	}
	return true, nil
}

// CreatePage opens a missing page for writing by other means: pwrite, or a
// shared mapping. The page is complete when the file is closed, no mapping is
// left and its size is sizeBytes. It returns nil without error if the page is
// there already.
func (s *Staging) CreatePage(ctx context.Context, path string, sizeBytes int64) (*os.File, error) {
	return s.createPage(ctx, path, sizeBytes, unix.O_RDWR)
}

func (s *Staging) createPage(ctx context.Context, path string, sizeBytes int64, access int) (*os.File, error) {
	for {
		f, err := s.create(path, access|unix.O_CREAT|unix.O_EXCL)
		switch {
		case err == nil:
			return f, nil
		case isErrno(err, unix.EEXIST):
			complete, err := s.awaitPage(ctx, path, sizeBytes)
			if complete || err != nil {
				return nil, err
			}
		case isGone(err):
			// The last page came from elsewhere and another rank published.
			if s.published() {
				return nil, nil
			}
			return nil, s.fail("create page "+path+" of", ErrGone)
		default:
			return nil, s.fail("create page "+path+" of", err)
		}
	}
}

// create opens a new page, and makes its directories if they are not there.
func (s *Staging) create(page string, flags int) (*os.File, error) {
	f, err := openAt(s.fd(), page, flags, 0o644)
	if !isErrno(err, unix.ENOENT) {
		return f, err
	}
	group := path.Dir(page)
	for _, dir := range []string{path.Dir(group), group} {
		if err := mkdirAt(s.fd(), dir); err != nil {
			return nil, err
		}
	}
	return openAt(s.fd(), page, flags, 0o644)
}

// fill copies exactly sizeBytes. What comes from memory goes in one call; else
// ctx is looked at before every read.
func fill(ctx context.Context, f *os.File, sizeBytes int64, content io.Reader) error {
	var n int64
	var err error
	if memory, ok := content.(*bytes.Reader); ok {
		n, err = memory.WriteTo(f)
	} else {
		buffer := make([]byte, min(sizeBytes, copyBufferBytes))
		// The struct hides ReadFrom: the kernel's copy calls do not help here.
		n, err = io.CopyBuffer(struct{ io.Writer }{f}, readWhile{ctx, io.LimitReader(content, sizeBytes)}, buffer)
	}
	if err == nil && n != sizeBytes {
		err = fmt.Errorf("only %d of %d bytes: %w", n, sizeBytes, io.ErrUnexpectedEOF)
	}
	return err
}

// readWhile reads until ctx ends.
type readWhile struct {
	ctx context.Context
	io.Reader
}

func (r readWhile) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// awaitPage waits for a page that somebody else has created. It returns false
// when the page was left behind incomplete; its name is free again then.
func (s *Staging) awaitPage(ctx context.Context, path string, sizeBytes int64) (bool, error) {
	var seen unix.Stat_t
	since := time.Now()
	for wait := newBackoff(); ; {
		st, err := statAt(s.fd(), path)
		switch {
		case err != nil && s.published(), st.Size == sizeBytes:
			return true, nil // if its writer is still busy, publication waits for it
		case isErrno(err, unix.ENOENT):
			return false, nil
		case err != nil:
			return false, s.fail("wait for page "+path+" of", err)
		}
		if st.Size != seen.Size || st.Mtim != seen.Mtim {
			seen, since = st, time.Now()
		}
		if time.Since(since) >= abandonedAfter {
			return s.discardPage(path)
		}
		if err := wait.wait(ctx); err != nil {
			return false, s.fail("wait for page "+path+" of", err)
		}
	}
}

// discardPage removes an incomplete page, unless the plan says that the page is
// no longer missing.
func (s *Staging) discardPage(path string) (complete bool, err error) {
	missing, err := s.isMissing(path)
	if err == nil && missing {
		// By its path: the open directory may be published by now, see Abandon.
		err = unlinkAt(unix.AT_FDCWD, s.dir+"/"+path, 0)
	}
	if err != nil {
		return false, s.fail("replace the incomplete page "+path+" of", err)
	}
	return !missing, nil
}
