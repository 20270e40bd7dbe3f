package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Section 7: the death of the keeper too, clean stops, and daemons that cannot live.

// ctl runs another ckptfs command.
func (m *mount) ctl(args ...string) (string, error) {
	out, err := exec.Command(m.binary, args...).CombinedOutput()
	return string(out), err
}

// stat2 identifies the file that path leads to.
func stat2(t testing.TB, path string) [2]uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return [2]uint64{uint64(st.Dev), st.Ino}
}

// TestKeeperKilled: published generations survive the death of every process;
// stagings do not; the dead mount is cleared by the next start.
func TestKeeperKilled(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 5)
		model := filepath.Dir(ident)
		m.addModel(t, "empty")
		before := snapshot(t, model)
		for range 2 {
			s := beginStaging(t, ident, "lost", smallGeneration(gens[0].ID, conversation(50, 900)))
			s.complete(t)
			m.killKeeper()
			_, err := os.Stat(m.statusPath())
			wantOneOf(t, "a call after the keeper's death", err, syscall.ENOTCONN, syscall.ECONNABORTED)
			m.start()
			wantSnapshot(t, "after the keeper's death", before, snapshot(t, model))
			for _, g := range gens {
				must(t, checkGeneration(filepath.Join(ident, g.name()), g))
				wantManifest(t, filepath.Join(ident, g.name()), g)
				if got := ask(t, ident, g.Tokens); got.Generation != g.name() {
					t.Errorf("found %+v, want %s", got, g.name())
				}
			}
			if got := names(t, filepath.Join(ident, ".staging")); len(got) != 0 {
				t.Errorf("stagings are left: %q", got)
			}
		}
		if got := strings.Join(names(t, m.path), " "); got != "empty model" {
			t.Errorf("the root lists %q", got)
		}
		// History is shared with what was adopted, and it goes as it came.
		long := smallGeneration(gens[0].ID, conversation(1, 3000))
		s := beginStaging(t, ident, "long", long)
		if p, err := s.plan(); err != nil || len(p.Missing) >= len(long.pages()) {
			t.Errorf("nothing adopted is shared: %d missing, %v", len(p.Missing), err)
		}
		s.complete(t)
		must(t, s.rename())
		rmSilently(t, model)
		wantMissing(t, model)
	})
}

// TestUnmountedFromOutside: umount(8) is a stop like any other, nothing is lost by it.
func TestUnmountedFromOutside(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 3)
		must(t, unix.Unmount(m.path, 0))
		must(t, m.reap())
		m.start()
		for _, g := range gens {
			must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		}
	})
}

// TestKeeperKilledUnderLoad: whatever rename had returned 0 for is there afterwards, whole.
func TestKeeperKilledUnderLoad(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		for round := range 3 {
			id := newIdentity("crash", 2)
			ident := m.addIdentity(t, "model", id)
			l := startLoad(t, loadConfig{Kind: "publisher", Mount: m.path, Ident: ident, ID: id, Seed: uint64(round + 1)})
			loads{l}.advance(t, int64(10+7*round))
			m.killKeeper()
			report := l.finishLoad(t) // its last call failed, of course
			m.start()
			for _, ref := range report.Published {
				g := ref.generation(id)
				if err := checkGeneration(filepath.Join(ident, g.name()), g); err != nil && !strings.Contains(report.Err, g.name()) {
					t.Errorf("round %d: %s was published: %v (the load ended with %s)", round, g.name(), err, report.Err)
				}
			}
			if got := names(t, filepath.Join(ident, ".staging")); len(got) != 0 {
				t.Errorf("stagings are left: %q", got)
			}
			rmSilently(t, ident)
		}
	})
}

// TestCleanRestart: after SIGTERM and a new start, what is listed is whole, and
// the tree of models and identities is as it was.
func TestCleanRestart(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := removalSetup(t, m, 5)
		must(t, os.Chmod(ident, 0o750))
		beginStaging(t, ident, "left", smallGeneration(gens[0].ID, conversation(50, 900)))
		model := stat(t, filepath.Dir(ident))
		m.stop()
		if left := m.mounts(); len(left) != 0 {
			t.Fatalf("still mounted: %q", left)
		}
		m.start()
		if st := stat(t, filepath.Dir(ident)); st.Ino != model.Ino {
			t.Errorf("the model's inode was %d, is %d", model.Ino, st.Ino)
		}
		if st := stat(t, ident); st.Mode&0o7777 != 0o750 {
			t.Errorf("the identity's mode is %o", st.Mode&0o7777)
		}
		listed := names(t, ident)
		for _, g := range gens {
			if contains(listed, g.name()) {
				must(t, checkGeneration(filepath.Join(ident, g.name()), g))
			} else {
				wantMissing(t, filepath.Join(ident, g.name()))
			}
		}
		if got := names(t, filepath.Join(ident, ".staging")); len(got) != 0 {
			t.Errorf("stagings are left: %q", got)
		}
		got := ask(t, ident, gens[4].Tokens)
		if got.Generation != "" && !contains(listed, got.Generation) {
			t.Errorf("found %+v, which is not listed", got)
		}
		again := smallGeneration(gens[0].ID, conversation(60, 900))
		must(t, checkGeneration(publish(t, ident, again), again))
	})
}

// TestStops: SIGINT ends as SIGTERM does; a busy mount is detached.
func TestStops(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		m.expectWarn("busy")
		m.expectWarn("detach")
		ident, gens := removalSetup(t, m, 2)
		g := gens[0]
		a := newAgent(t) // keeps a page open, and mapped
		fd := int(a.do(request{Op: "open", Path: filepath.Join(ident, g.name(), g.pages()[0].path)}).N)
		mem := int(a.do(request{Op: "mmap", FD: fd, Len: smallPage, Flags: unix.PROT_READ, Mode: unix.MAP_SHARED}).N)
		a.do(request{Op: "mapcheck", FD: mem, Page: wire(g.pages()[0])})
		must(t, m.cmd.Process.Signal(syscall.SIGINT))
		done := make(chan error, 1)
		go func() { done <- m.reap() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("after SIGINT: %v\n%s", err, tail(m.log()))
			}
		case <-time.After(patience):
			m.giveUp()
			<-done
		}
		if left := m.mounts(); len(left) != 0 {
			t.Errorf("still mounted: %q", left)
		}
		if md.name == "passthrough" {
			a.do(request{Op: "mapcheck", FD: mem, Page: wire(g.pages()[0])}) // the bytes stay right
		}
		a.end()
	})
}

// TestDaemonCannotLive: a daemon that dies at once, again and again, is given
// up with a message, an exit code, and no mount left.
func TestDaemonCannotLive(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	m.expectWarn("") // there is much to warn of
	keeper := m.cmd.Process.Pid
	done := make(chan error, 1)
	go func() { done <- m.reap() }()
	var err error
	if !waitFor(patience, func() bool {
		for _, pid := range m.processes() {
			if pid != keeper {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	}) {
		m.giveUp()
		err = <-done
	}
	if err == nil {
		t.Error("exit code 0 though no daemon could live")
	}
	if left := m.mounts(); contains(left, m.path) {
		t.Errorf("still mounted: %q", left)
	}
	lines := strings.Split(strings.TrimSpace(m.log()), "\n")
	wantSentence(t, "the last line of the log", lines[len(lines)-1])
}

// TestBadUpgrade: a new binary that cannot serve does not end the mount.
func TestBadUpgrade(t *testing.T) {
	requireFUSE(t)
	for what, content := range map[string]string{
		"a script that fails": "#!/bin/sh\nexit 7\n",
		"no program at all":   "hello",
	} {
		t.Run(what, func(t *testing.T) {
			m := newMount(t, modes[0])
			m.binary = filepath.Join(m.dir, "ckptfs")
			must(t, copyFile(suite.binary, m.binary, 0o755))
			m.start()
			m.expectWarn("") // there is something to warn of
			ident, gens := removalSetup(t, m, 2)
			f, err := os.Open(filepath.Join(ident, gens[0].name(), gens[0].pages()[0].path))
			must(t, err)
			defer f.Close()
			must(t, os.WriteFile(m.binary+".new", []byte(content), 0o755))
			must(t, os.Rename(m.binary+".new", m.binary))
			if out, err := exec.Command(suite.binary, "upgrade", m.path).CombinedOutput(); err == nil {
				t.Errorf("ckptfs upgrade to %s succeeds: %s", what, out)
			}
			must(t, m.checkLive())
			must(t, checkOpenPage(f, gens[0].pages()[0]))
			must(t, checkGeneration(filepath.Join(ident, gens[1].name()), gens[1]))
		})
	}
}
