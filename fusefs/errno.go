package fusefs

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
)

// status maps an error to what the kernel is told. An errno in the chain is
// what it is; an error that nobody gave an errno is EIO and is logged, because
// then the words are all there is.
func status(log *slog.Logger, err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	if errno, ok := errnoOf(err); ok {
		return fuse.Status(errno)
	}
	log.Error("unexpected error, told the caller EIO", "error", err)
	return fuse.EIO
}

func errnoOf(err error) (syscall.Errno, bool) {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno, true
	case errors.Is(err, index.ErrExist), errors.Is(err, fs.ErrExist):
		return syscall.EEXIST, true
	case errors.Is(err, index.ErrNotExist), errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT, true
	case errors.Is(err, index.ErrNotEmpty):
		return syscall.ENOTEMPTY, true
	case errors.Is(err, index.ErrFull):
		return syscall.ENOSPC, true
	case errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT, true
	}
	return 0, false
}
