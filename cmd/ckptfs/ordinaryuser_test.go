package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is an ordinary user.
const nobody = "65534"

// asNobody makes /dev/fuse usable for everybody, as udev does on most machines, in a mount namespace of its own, and
// then runs a command as an ordinary user. Its first argument is an empty directory.
const asNobody = `set -e
mount --make-rprivate /
mount -t tmpfs -o dev none "$1"
mknod -m 666 "$1/fuse" c 10 229
mount --bind "$1/fuse" /dev/fuse
shift
exec setpriv --reuid=` + nobody + ` --regid=` + nobody + ` --clear-groups "$@"`

// TestOrdinaryUserFromRoot runs TestOrdinaryUser as one.
func TestOrdinaryUserFromRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	for _, tool := range []string{"fusermount3", "unshare", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v", err)
		}
	}
	requireFUSE(t)
	dir, err := os.MkdirTemp("", "ckptfs-nobody-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	for name, mode := range map[string]os.FileMode{"dev": 0o755, "tmp": 0o777} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	self, err := os.Executable()
	must(t, err)
	b, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "test"), b, 0o755))
	cmd := exec.Command("unshare", "-m", "sh", "-c", asNobody, "sh", filepath.Join(dir, "dev"),
		filepath.Join(dir, "test"), "-test.run=^TestOrdinaryUser$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(dir, "tmp"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOrdinaryUser") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestOrdinaryUser mounts by fusermount3 and keeps the RAM tier in /dev/shm. All promises hold all the same.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("for an ordinary user; TestOrdinaryUserFromRoot becomes one")
	}
	m := newMounted(t, "--passthrough=on")
	if code, text := m.refused(); code != exitMount || !strings.Contains(text, "passthrough is not to be had") {
		t.Errorf("--passthrough=on: exit code %d, %q", code, text)
	}
	m.flags = append(m.flags, "--passthrough=auto")
	m.start()
	if !strings.Contains(m.line, "directory in /dev/shm") || !strings.Contains(m.line, "passthrough off") {
		t.Errorf("the line is %q", m.line)
	}
	mark := filepath.Join(sharedRAMDir(m.state), "mark")
	must(t, os.WriteFile(mark, nil, 0o600))
	l := m.startLoad()
	s := m.status()
	for range 5 {
		must(t, syscall.Kill(s.PID, syscall.SIGKILL))
		s = m.awaitDaemon(s.PID)
	}
	if code, out := m.upgrade(); code != exitOK {
		t.Errorf("upgrade: exit code %d, %q", code, out)
	}
	if r := l.stop(); len(r.Errors) > 0 {
		t.Errorf("clients saw errors: %q", r.Errors)
	}
	must(t, m.cmd.Process.Kill())
	m.wait()
	m.start() // clears the dead mount, by fusermount3
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the RAM tier was not taken over: %v", err)
	}
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d; log:\n%s", code, m.logText())
	}
	m.wantMounts(0, 0)
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the RAM tier is left: %v", err)
	}
}
