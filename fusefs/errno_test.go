package fusefs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/evict"
	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fuse.Status
	}{
		{nil, fuse.OK},
		{syscall.EBUSY, fuse.EBUSY},
		{&staging.Error{Errno: syscall.EXDEV, Reason: "because"}, fuse.EXDEV},
		{fmt.Errorf("outer: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.ENOSPC}), fuse.Status(syscall.ENOSPC)},
		{fmt.Errorf("outer: %w", index.ErrExist), fuse.Status(syscall.EEXIST)},
		{index.ErrNotExist, fuse.ENOENT},
		{index.ErrNotEmpty, fuse.Status(syscall.ENOTEMPTY)},
		{index.ErrFull, fuse.Status(syscall.ENOSPC)},
		{&index.InvalidError{Reason: "because"}, fuse.EINVAL},
		{evict.ErrNoRoom, fuse.Status(syscall.ENOSPC)},
		{evict.ErrTooLarge, fuse.Status(syscall.ENOSPC)},
		{evict.ErrPageLost, fuse.EIO},
		{pages.ErrDiskBound, fuse.Status(syscall.ENOSPC)},
		{fs.ErrNotExist, fuse.ENOENT},
	} {
		if got := status(slog.New(slog.DiscardHandler), c.err); got != c.want {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
	}
	var log bytes.Buffer
	if got := status(slog.New(slog.NewTextHandler(&log, nil)), errors.New("nobody knows")); got != fuse.EIO {
		t.Errorf("an unknown error is %v", got)
	}
	if !bytes.Contains(log.Bytes(), []byte("nobody knows")) {
		t.Error("an unknown error is not in the log")
	}
}

func TestNoticeBytes(t *testing.T) {
	le := binary.LittleEndian
	b := notice{node: 7}.encode()
	if len(b) != 16+24 || le.Uint32(b[4:]) != 2 || le.Uint64(b[16:]) != 7 || int64(le.Uint64(b[24:])) != -1 {
		t.Errorf("attributes: % x", b)
	}
}
