package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What `ckptfs mount` refuses, and how a mount shows in the mount table.

// wantRefusal runs a mount that must end at once with one sentence and an exit code.
func (m *mount) wantRefusal(what string) {
	m.t.Helper()
	before := tree(m.t, m.dir)
	cmd := m.command()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var err error
	ended := waitFor(patience, func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	if !ended {
		cmd.Process.Kill()
		<-done
		m.t.Fatalf("%s: it is not refused", what)
	}
	if err == nil {
		m.t.Errorf("%s: exit code 0", what)
	}
	wantSentence(m.t, what, errs.String())
	if out.Len() != 0 {
		m.t.Errorf("%s: it printed %q", what, out.String())
	}
	if after := tree(m.t, m.dir); after != before {
		m.t.Errorf("%s: it touched something:\n%s\nbefore:\n%s", what, after, before)
	}
}

// tree describes what is below a directory, without entering other mounts.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	skip := map[string]bool{}
	for _, p := range mountsBelow(dir) {
		skip[p] = true
	}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.WriteString(path + "\n")
		if skip[path] {
			return filepath.SkipDir
		}
		return nil
	}))
	return b.String()
}

func TestMountRefused(t *testing.T) {
	requireFUSE(t)
	md := modes[0]
	t.Run("state below the mount point", func(t *testing.T) {
		m := newMount(t, md)
		m.state = filepath.Join(m.path, "state")
		m.wantRefusal("state below the mount point")
		must(t, os.Mkdir(m.state, 0o755))
		m.wantRefusal("state below the mount point, there already")
		m.state = m.path
		m.wantRefusal("state at the mount point")
		must(t, os.Symlink(filepath.Join(m.path, "state"), filepath.Join(m.dir, "link")))
		m.state = filepath.Join(m.dir, "link")
		m.wantRefusal("state below the mount point by a symlink")
	})
	t.Run("mount point is no directory", func(t *testing.T) {
		m := newMount(t, md)
		m.path = filepath.Join(m.dir, "missing")
		m.wantRefusal("missing mount point")
		m.path = filepath.Join(m.dir, "file")
		must(t, os.WriteFile(m.path, nil, 0o644))
		m.wantRefusal("mount point is a file")
	})
	t.Run("state in use, mount point in use", func(t *testing.T) {
		first := mountFS(t, md)
		ident, gens := removalSetup(t, first, 2)
		pid, err := first.status()
		must(t, err)

		sameState := newMount(t, md)
		sameState.state = first.state
		stateBefore := tree(t, first.state)
		sameState.wantRefusal("a second daemon on one state")
		if after := tree(t, first.state); after != stateBefore {
			t.Errorf("the state was touched:\n%s\nbefore:\n%s", after, stateBefore)
		}
		samePoint := newMount(t, md)
		samePoint.path = first.path
		samePoint.wantRefusal("a live mount on the mount point")

		now, err := first.status()
		must(t, err)
		if now != pid {
			t.Errorf("another process serves: %+v, before %+v", now, pid)
		}
		must(t, checkGeneration(filepath.Join(ident, gens[1].name()), gens[1]))
		must(t, first.checkLive())
	})
	t.Run("flags", func(t *testing.T) {
		for _, flag := range []string{"--no-such-flag", "--l1-size=lots", "--l1-size=-1", "--l1-size=0", "--staging-timeout=soon",
			"--max-staging=-1", "--ram-tier=disk", "--passthrough=maybe", "--log-level=loud"} {
			newMount(t, md, flag).wantRefusal(flag)
		}
	})
}

// checkLive makes one round of changes through the mount.
func (m *mount) checkLive() error {
	dir := filepath.Join(m.path, "live")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Remove(dir)
}

func TestMountTable(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other=false")
		if m.ready == "" || !strings.Contains(m.ready, m.path) {
			t.Errorf("the line that says it is ready does not name the mount point: %q", m.ready)
		}
		for _, e := range mountTable() {
			if e.point != m.path {
				continue
			}
			if e.fstype != "fuse.ckptfs" {
				t.Errorf("its type is %q", e.fstype)
			}
			for _, opt := range []string{"default_permissions", "nosuid", "nodev"} {
				if !strings.Contains(","+e.options+",", ","+opt+",") {
					t.Errorf("no %s in its options %s", opt, e.options)
				}
			}
			if strings.Contains(e.options, "allow_other") {
				t.Errorf("allow_other though it was refused: %s", e.options)
			}
			return
		}
		t.Errorf("%s is not in the mount table", m.path)
	})
}
