package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// agentRole makes calls one after another until its input ends.
func agentRole(in *json.Decoder, out *json.Encoder) {
	c := caller{files: map[int]*os.File{}, maps: map[int][]byte{}}
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			return
		}
		n, data, err := c.serve(&r)
		rep := replyErr(err)
		rep.N, rep.Data = n, data
		if out.Encode(rep) != nil {
			return
		}
	}
}

// caller holds what the calls of a client process leave open.
type caller struct {
	files map[int]*os.File
	maps  map[int][]byte
}

func (c *caller) serve(r *request) (int64, []byte, error) {
	switch r.Op {
	case "open", "close", "write", "read", "truncate", "reply", "checkfd":
		return c.fileOp(r)
	case "mmap", "mapwrite", "mapcheck", "munmap":
		return c.mapOp(r)
	case "begin", "writerank", "rename-staging", "check", "checkpage", "waitfor":
		return c.protocolOp(r)
	}
	return c.pathOp(r)
}

func (c *caller) fileOp(r *request) (int64, []byte, error) {
	if r.Op == "open" {
		f, err := os.OpenFile(r.Path, r.Flags, os.FileMode(r.Mode))
		if err != nil {
			return 0, nil, err
		}
		fd := int(f.Fd())
		c.files[fd] = f
		return int64(fd), nil, nil
	}
	f := c.files[r.FD]
	if f == nil {
		return 0, nil, fmt.Errorf("no file %d", r.FD)
	}
	switch r.Op {
	case "close":
		delete(c.files, r.FD)
		return 0, nil, f.Close()
	case "truncate":
		return 0, nil, f.Truncate(r.Len)
	case "write":
		data := r.Data
		if r.Page != nil {
			data = pageRange(r.Page.page(), r.Copy, r.Off, r.Off+r.Len)
		}
		n, err := f.Write(data)
		return int64(n), nil, err
	case "read":
		buf := make([]byte, r.Len)
		n, err := f.ReadAt(buf, r.Off)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return int64(n), buf[:n], err
	case "reply":
		s, err := readReply(f)
		return int64(len(s)), []byte(s), err
	case "checkfd":
		return 0, nil, checkOpenPage(f, r.Page.page(), r.Copies...)
	}
	return 0, nil, errors.New("unknown file call " + r.Op)
}

func (c *caller) mapOp(r *request) (int64, []byte, error) {
	switch r.Op {
	case "mmap": // Flags is the protection, Mode the mapping's flags
		b, err := unix.Mmap(r.FD, 0, int(r.Len), r.Flags, int(r.Mode))
		if err != nil {
			return 0, nil, err
		}
		id := len(c.maps) + 1
		c.maps[id] = b
		return int64(id), nil, nil
	case "mapwrite":
		copy(c.maps[r.FD][r.Off:], pageRange(r.Page.page(), r.Copy, r.Off, r.Off+r.Len))
		return 0, nil, nil
	case "mapcheck":
		return 0, nil, checkBytes(r.Page.page(), r.Copy, 0, c.maps[r.FD])
	case "munmap":
		b := c.maps[r.FD]
		delete(c.maps, r.FD)
		return 0, nil, unix.Munmap(b)
	}
	return 0, nil, errors.New("unknown mapping call " + r.Op)
}

// protocolOp does a part of the protocol; Path is the identity's directory, To the staging's name.
func (c *caller) protocolOp(r *request) (int64, []byte, error) {
	switch r.Op {
	case "check": // Path is the generation's directory
		return 0, nil, checkGeneration(r.Path, *r.Gen, r.Copies...)
	case "waitfor":
		return 0, nil, waitForGeneration(r.Path, *r.Gen)
	case "checkpage":
		return 0, nil, checkPage(r.Path, r.Page.page(), r.Copies...)
	}
	s := staging{ident: r.Path, name: r.To, g: *r.Gen}
	switch r.Op {
	case "begin":
		return 0, nil, s.begin()
	case "writerank":
		n, err := s.writeMissing(r.Rank, r.Copy)
		return n, nil, err
	case "rename-staging":
		return 0, nil, s.rename()
	}
	return 0, nil, errors.New("unknown step " + r.Op)
}

func (c *caller) pathOp(r *request) (int64, []byte, error) {
	switch r.Op {
	case "mkdir":
		return 0, nil, syscall.Mkdir(r.Path, r.Mode)
	case "rmdir":
		return 0, nil, syscall.Rmdir(r.Path)
	case "unlink":
		return 0, nil, syscall.Unlink(r.Path)
	case "rename":
		return 0, nil, renameFlags(r.Path, r.To, uint(r.Flags))
	case "link":
		return 0, nil, syscall.Link(r.Path, r.To)
	case "setxattr":
		return 0, nil, unix.Lsetxattr(r.Path, r.To, r.Data, 0)
	case "chmod":
		return 0, nil, syscall.Chmod(r.Path, r.Mode)
	case "chown":
		return 0, nil, syscall.Chown(r.Path, int(r.Off), int(r.Len))
	case "stat":
		var st syscall.Stat_t
		err := syscall.Lstat(r.Path, &st)
		return int64(st.Ino), nil, err
	case "list":
		entries, err := os.ReadDir(r.Path)
		var list []string
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return int64(len(list)), []byte(strings.Join(list, "\n")), err
	case "readfile":
		b, err := os.ReadFile(r.Path)
		return int64(len(b)), b, err
	case "writefile":
		return 0, nil, os.WriteFile(r.Path, r.Data, os.FileMode(r.Mode))
	case "identify":
		s, err := identify(r.Path, r.Data)
		return 0, []byte(s), err
	}
	return 0, nil, errors.New("unknown call " + r.Op)
}
