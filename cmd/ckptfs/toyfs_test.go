package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// toyFS is a filesystem just large enough to try the keeper and the daemon with. Nothing is cached by the kernel, so
// every call of a client reaches the daemon. Node ids are fixed, so each daemon understands what another gave out.
type toyFS struct {
	fuse.RawFileSystem
	cfg         *daemonConfig
	passthrough bool
	stuck       bool // Drain does not return
	hung        bool // Probe does not return
	slowEnd     bool // Close takes a while
}

const (
	toyRoot = 1 + iota
	toyData
	toySlow   // each read takes a while
	toyLate   // is not read before toyLateFile is there
	toyPoison // to open it ends the daemon
	toyControl
	toyStatus
)

const (
	toyBytes    = 256 << 10
	toyModeFile = "toy-mode"    // in the state directory: what goes wrong in this daemon
	toyLateFile = "toy-late"    // in the state directory: lets reads of toyLate go on
	toyDrained  = "toy-drained" // in the state directory: a daemon was drained
	toyClosing  = "toy-closing" // likewise: one is being closed
)

var toyNodes = map[uint64]struct {
	parent uint64
	name   string
	dir    bool
}{
	toyRoot:    {toyRoot, "", true},
	toyData:    {toyRoot, "data", false},
	toySlow:    {toyRoot, "slow", false},
	toyLate:    {toyRoot, "late", false},
	toyPoison:  {toyRoot, "poison", false},
	toyControl: {toyRoot, ".ckptfs", true},
	toyStatus:  {toyControl, "status.json", false},
}

func newToyFS(cfg *daemonConfig, _ *slog.Logger) (filesystem, error) {
	mode, _ := os.ReadFile(filepath.Join(cfg.StateDir, toyModeFile))
	fs := &toyFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), cfg: cfg}
	switch strings.TrimSpace(string(mode)) {
	case "exit":
		os.Exit(7)
	case "panic":
		go func() { panic("the toy was told to") }()
		select {}
	case "fatal":
		return nil, withCode(exitState, errors.New("the toy was told to fail"))
	case "stuck":
		fs.stuck = true
	case "hung":
		fs.hung = true
	case "slow end":
		fs.slowEnd = true
	case "":
	default:
		return nil, fmt.Errorf("unknown mode %q", mode)
	}
	return fs, nil
}

func (fs *toyFS) SetPassthrough(on bool) { fs.passthrough = on }

func (fs *toyFS) Drain(ctx context.Context) error {
	if fs.stuck {
		select {}
	}
	return os.WriteFile(filepath.Join(fs.cfg.StateDir, toyDrained), nil, 0o600)
}

func (fs *toyFS) Close() error {
	err := os.WriteFile(filepath.Join(fs.cfg.StateDir, toyClosing), nil, 0o600)
	if fs.slowEnd {
		time.Sleep(300 * time.Millisecond)
	}
	return err
}

// status is the toy's .ckptfs/status.json. Its version is the size of the binary: tests make another by padding it.
func (fs *toyFS) status() []byte {
	var size int64
	if st, err := os.Stat("/proc/self/exe"); err == nil {
		size = st.Size()
	}
	b, _ := json.Marshal(toyStatusDoc{
		daemonStatus: daemonStatus{PID: os.Getpid(), KeeperPID: fs.cfg.Keeper.PID, Version: fmt.Sprint(size), UpgradeError: fs.cfg.Keeper.UpgradeError},
		Fresh:        fs.cfg.FreshMount, Restarts: fs.cfg.Keeper.Restarts, Passthrough: fs.passthrough,
	})
	return append(b, '\n')
}

type toyStatusDoc struct {
	daemonStatus
	Fresh       bool
	Restarts    int
	Passthrough bool
}

func (fs *toyFS) attr(node uint64, out *fuse.Attr) fuse.Status {
	n, ok := toyNodes[node]
	if !ok {
		return fuse.ENOENT
	}
	*out = fuse.Attr{Ino: node, Nlink: 1, Mode: fuse.S_IFREG | 0o444, Size: toyBytes}
	if n.dir {
		out.Mode, out.Size = fuse.S_IFDIR|0o755, 0
	}
	return fuse.OK
}

func (fs *toyFS) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	for id, n := range toyNodes {
		if n.parent == h.NodeId && n.name == name {
			out.NodeId = id
			return fs.attr(id, &out.Attr)
		}
	}
	return fuse.ENOENT
}

func (fs *toyFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return fs.attr(in.NodeId, &out.Attr)
}

func (fs *toyFS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId == toyPoison {
		syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	return fuse.OK
}

func (fs *toyFS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if in.NodeId == toyStatus {
		text := fs.status()
		return fuse.ReadResultData(text[min(int(in.Offset), len(text)):]), fuse.OK
	}
	if in.NodeId == toySlow {
		time.Sleep(20 * time.Millisecond)
	}
	for in.NodeId == toyLate {
		if _, err := os.Stat(filepath.Join(fs.cfg.StateDir, toyLateFile)); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	n := max(0, min(len(buf), toyBytes-int(in.Offset)))
	toyFill(buf[:n], int(in.Offset))
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// toyFill writes what the toy's files hold at offset.
func toyFill(buf []byte, offset int) {
	for i := range buf {
		buf[i] = byte((offset + i) * 31 >> 3)
	}
}

func (fs *toyFS) Release(<-chan struct{}, *fuse.ReleaseIn)         {}
func (fs *toyFS) ReleaseDir(*fuse.ReleaseIn)                       {}
func (fs *toyFS) Forget(uint64, uint64)                            {}
func (fs *toyFS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (fs *toyFS) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

func (fs *toyFS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	for id := max(in.Offset, toyRoot) + 1; id <= toyStatus; id++ {
		if n := toyNodes[id]; n.parent == in.NodeId && !out.AddDirEntry(fuse.DirEntry{Name: n.name, Ino: id, Mode: fuse.S_IFREG, Off: id}) {
			break
		}
	}
	return fuse.OK
}

func (fs *toyFS) Probe() {
	if fs.hung {
		select {}
	}
}

func (fs *toyFS) StatFs(<-chan struct{}, *fuse.InHeader, *fuse.StatfsOut) fuse.Status { return fuse.OK }
