package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// refused runs the mount, which must end at once, and returns its exit code and what it said.
func (m *mounted) refused() (code int, text string) {
	m.t.Helper()
	before := len(m.logText())
	m.launch()
	code = m.wait()
	return code, m.logText()[before:]
}

// wantRefusal also checks that it is said in one line and that nothing was touched.
func (m *mounted) wantRefusal(what string, wantCode int, wantText string) {
	m.t.Helper()
	before := treeOf(m.t, filepath.Dir(m.state))
	code, text := m.refused()
	if code != wantCode || !strings.Contains(text, wantText) || strings.Count(text, "\n") != 1 {
		m.t.Errorf("%s: exit code %d, want %d with a line about %q:\n%s", what, code, wantCode, wantText, text)
	}
	if after := treeOf(m.t, filepath.Dir(m.state)); after != before {
		m.t.Errorf("%s: something was touched:\n%s\nbefore:\n%s", what, after, before)
	}
}

// treeOf lists what is in a directory, and when it was changed.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(info.ModTime().String() + " " + path + "\n")
		return nil
	}))
	return b.String()
}

func TestRefusedMountPoints(t *testing.T) {
	m := newMounted(t)
	good := m.point
	m.point = filepath.Join(good, "missing")
	m.wantRefusal("missing", exitMountPoint, "does not exist")
	m.point = filepath.Join(filepath.Dir(good), "file")
	must(t, os.WriteFile(m.point, nil, 0o644))
	m.wantRefusal("a file", exitMountPoint, "not a directory")

	must(t, unix.Mount("none", good, "tmpfs", 0, "size=1m"))
	m.point = good
	m.wantRefusal("another filesystem", exitMountPoint, "tmpfs is mounted there")
	must(t, unix.Unmount(good, 0))

	m.point = ""
	m.wantRefusal("a variable that is not set", exitMountPoint, "is empty")

	m.point = filepath.Join(m.state, ramDirName, "mnt")
	must(t, os.MkdirAll(m.point, 0o755))
	m.wantRefusal("in the RAM tier", exitState, "RAM tier")
}

func TestRefusedStates(t *testing.T) {
	m := newMounted(t)
	for what, state := range map[string]string{
		"at the mount point":    m.point,
		"below":                 filepath.Join(m.point, "a", "b"),
		"below by a symlink":    filepath.Join(filepath.Dir(m.point), "link", "b"),
		"at it, with a dot-dot": filepath.Join(m.point, "x") + "/..",
	} {
		if strings.Contains(state, "link") {
			must(t, os.Symlink(m.point, filepath.Join(filepath.Dir(m.point), "link")))
		}
		m2 := *m
		m2.flags = append(append([]string{}, m.flags...), "--state", state)
		m2.wantRefusal(what, exitState, "lies at or below the mount point")
	}
	file := filepath.Join(filepath.Dir(m.point), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	m.flags = append(m.flags, "--state", file)
	m.wantRefusal("a file", exitState, "not a directory")
}

// TestRefusedDiskTiers: a disk tier in the mount would be opened by the daemon that is to serve it.
func TestRefusedDiskTiers(t *testing.T) {
	m := newMounted(t)
	link := filepath.Join(filepath.Dir(m.point), "link")
	must(t, os.Symlink(m.point, link))
	for _, dir := range []string{m.point, filepath.Join(m.point, "disk"), filepath.Join(link, "disk"), filepath.Join(m.state, ramDirName, "disk")} {
		m2 := *m
		m2.flags = append(append([]string{}, m.flags...), "--l2-dir", dir)
		m2.wantRefusal(dir, exitState, "is at or below")
	}
}

func TestRefusedWhileInUse(t *testing.T) {
	first := newMounted(t).start()
	pid := first.status().PID

	sameState := newMounted(t)
	sameState.flags = append(sameState.flags, "--state", first.state)
	sameState.wantRefusal("the same state", exitInUse, "mounted on "+first.point)

	samePoint := newMounted(t)
	samePoint.point = first.point
	samePoint.wantRefusal("the same mount point", exitMountPoint, "live fuse.ckptfs")

	if first.status().PID != pid {
		t.Errorf("another daemon serves the first mount")
	}
}

func TestRefusedFlags(t *testing.T) {
	m := newMounted(t)
	for _, flag := range []string{"--l1-size=0", "--l1-size=1000TiB", "--ram-tier=disk", "--passthrough=maybe", "--max-staging=0",
		"--staging-timeout=-1s", "--watchdog=1ms", "--log-level=loud", "--log-format=xml", "--no-such-flag", "--state="} {
		m2 := *m
		m2.flags = append(append([]string{}, m.flags...), flag)
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		m2.wantRefusal(flag, exitUsage, name)
	}
}

// TestStaleLockDoesNotBlock: what counts is who holds the lock, not what the file says.
func TestStaleLockDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, keeperLockName), []byte("pid 1, mounted on /"), 0o644))
	l, err := lockState(dir, false)
	if err != nil || l == nil {
		t.Fatalf("lockState = %v, %v", l, err)
	}
	must(t, l.describe("pid 42"))
	_, err = lockState(dir, true)
	if exitCodeOf(err) != exitInUse || !strings.Contains(err.Error(), "pid 42") {
		t.Errorf("a held lock: %v", err)
	}
	l.release()
	if l, err = lockState(dir, true); err != nil {
		t.Errorf("a released lock: %v", err)
	}
	l.release()
	if l, err := lockState(filepath.Join(dir, "nowhere"), false); l != nil || err != nil {
		t.Errorf("no lock file: %v, %v", l, err)
	}
}

func TestDeadMountsOfOthersAreCleared(t *testing.T) {
	m := newMounted(t)
	// Two dead mounts, one on the other, as a crash loop of another program leaves them.
	for range 2 {
		fuse, err := mountFUSE(m.point, false, discardLog())
		must(t, err)
		fuse.abort()
	}
	if _, err := os.ReadDir(m.point); !errors.Is(err, syscall.ENOTCONN) {
		t.Fatalf("the mount is not dead: %v", err)
	}
	m.start()
	m.wantMounts(1, 1)
	if code := m.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	m.wantMounts(0, 0)
}

func TestRelativeMountPoint(t *testing.T) {
	m := newMounted(t)
	t.Chdir(filepath.Dir(m.point))
	must(t, os.Symlink(m.point, "link"))
	at := m.point
	m.point = "link"
	m.start()
	if !bytes.Contains([]byte(m.line), []byte("mounted on "+at+" ")) {
		t.Errorf("the line is %q, want the real path %s", m.line, at)
	}
	m.point = at
}
