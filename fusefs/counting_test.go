package fusefs

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// counting counts the requests that the kernel sends: what an operation costs,
// whatever the machine is doing.
type counting struct {
	*FS
	mu   sync.Mutex
	wake chan struct{}
	n    map[string]int
}

func (c *counting) count(op string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[op]++
	close(c.wake)
	c.wake = make(chan struct{})
}

// reset forgets what has been counted.
func (c *counting) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = map[string]int{}
}

// settle waits until every file that was opened has been released, which may be
// after the close of its client, and forgets what has been counted.
func (c *counting) settle(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	opened := c.n["OPEN"] + c.n["CREATE"]
	c.mu.Unlock()
	c.await(t, "RELEASE", opened)
	c.reset()
}

// await waits until op has come n times (the kernel sends RELEASE after close)
// and gives all counts.
func (c *counting) await(t *testing.T, op string, n int) map[string]int {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		got, wake := c.n, c.wake
		if got[op] >= n {
			defer c.mu.Unlock()
			all := map[string]int{}
			for k, v := range got {
				all[k] = v
			}
			return all
		}
		c.mu.Unlock()
		select {
		case <-wake:
		case <-deadline:
			t.Fatalf("%s did not come %d times: %v", op, n, got)
		}
	}
}

func (c *counting) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	c.count("LOOKUP")
	return c.FS.Lookup(cancel, h, name, out)
}

func (c *counting) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	c.count("GETATTR")
	return c.FS.GetAttr(cancel, in, out)
}

func (c *counting) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	c.count("GETXATTR")
	return c.FS.GetXAttr(cancel, h, attr, dest)
}

func (c *counting) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	c.count("CREATE")
	return c.FS.Create(cancel, in, name, out)
}

func (c *counting) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	c.count("OPEN")
	return c.FS.Open(cancel, in, out)
}

func (c *counting) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	c.count("READ")
	return c.FS.Read(cancel, in, buf)
}

func (c *counting) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	c.count("WRITE")
	return c.FS.Write(cancel, in, data)
}

func (c *counting) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	c.count("FLUSH")
	return c.FS.Flush(cancel, in)
}

func (c *counting) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	c.FS.Release(cancel, in)
	c.count("RELEASE")
}

// mountCounting serves a mount from this process; another one uses it. It skips
// where that is impossible (with CKPTFS_REQUIRE_FUSE=1: fails). Before anything is
// served, prepare may change the filesystem.
func mountCounting(t *testing.T, prepare ...func(*FS)) (*counting, string) {
	t.Helper()
	cannot := func(err error) {
		if os.Getenv("CKPTFS_REQUIRE_FUSE") != "" {
			t.Fatalf("a mount is required: %v", err)
		}
		t.Skipf("no mount: %v", err)
	}
	point := t.TempDir()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		cannot(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,default_permissions", fd, os.Geteuid(), os.Getegid())
	if err := unix.Mount("ckptfs", point, "fuse.ckptfs", unix.MS_NODEV|unix.MS_NOSUID, data); err != nil {
		cannot(err)
	}
	t.Cleanup(func() { unix.Unmount(point, unix.MNT_DETACH) })
	fs, err := New(testConfig(t, fd, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range prepare {
		f(fs)
	}
	c := &counting{FS: fs, wake: make(chan struct{}), n: map[string]int{}}
	server, err := fuse.NewServer(c, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{
		MaxWrite: 1 << 20, MaxStackDepth: 1,
		ExtraCapabilities:    fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2,
		DisabledCapabilities: fuse.CAP_NO_OPEN_SUPPORT | fuse.CAP_NO_OPENDIR_SUPPORT,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); server.Serve() }()
	t.Cleanup(func() {
		if err := unix.Unmount(point, 0); err != nil {
			t.Errorf("unmount: %v", err)
			return
		}
		<-served
	})
	return c, point
}

// testConfig is a new state. fuseFD is -1 without a mount.
func testConfig(t testing.TB, fuseFD int, passthrough bool) Config {
	t.Helper()
	dir := t.TempDir()
	ram := filepath.Join("/dev/shm", fmt.Sprintf("ckptfs-test-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(dir))))
	if err := os.Mkdir(ram, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(ram) })
	return Config{
		StateDir: dir, RAMDir: ram, L1Bytes: 1 << 30, MaxGenerations: 1 << 16, MaxStaging: 128, MaxHandles: defaultSlots,
		StagingTimeout: time.Hour, AdmissionTimeout: time.Second, Passthrough: passthrough, FreshMount: true,
		FuseFD: fuseFD, PID: os.Getpid(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now,
	}
}

// quietFS is a filesystem without a mount and without anything that works in the
// background, so that all that happens is what a test does.
func quietFS(t testing.TB) *FS {
	t.Helper()
	return quietFSOf(t, testConfig(t, -1, false))
}

func quietFSOf(t testing.TB, cfg Config) *FS {
	t.Helper()
	fs := &FS{RawFileSystem: fuse.NewDefaultRawFileSystem(), cfg: cfg, log: cfg.Logger, now: cfg.Now, started: cfg.Now(), metrics: newMetrics(), busiest: newBusiest(cfg.Now)}
	t.Cleanup(func() {
		if err := fs.closeParts(); err != nil {
			t.Error(err)
		}
	})
	if err := fs.open(); err != nil {
		t.Fatal(err)
	}
	return fs
}

// clientEnv has the test program act as a client of a mount: a program must not
// use its own mount from the process that serves it.
const clientEnv = "CKPTFS_TEST_CLIENT"

// asClient runs a step of TestClient in a process of its own.
func asClient(t *testing.T, step string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-test.run=^TestClient$", "--"}, args...)...)
	cmd.Env = append(os.Environ(), clientEnv+"="+step)
	var failed bytesWriter
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("client %s: %v\n%s%s", step, err, out, failed)
	}
	return string(out)
}

type bytesWriter []byte

func (b *bytesWriter) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }
