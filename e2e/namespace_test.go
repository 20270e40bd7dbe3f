package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Engines and ckptfs in containers, as far as the kernel is concerned: mount namespaces, and PID namespaces.

// sharedDir makes a directory from which mounts spread to other mount namespaces, as a host's directories are. Call it
// before newMount: what is below it is unmounted last.
func sharedDir(t *testing.T) string {
	t.Helper()
	requireFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("only root makes mount namespaces")
	}
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(suite.dir, "shared-"+strconv.FormatInt(mountCount.Add(1), 10))
	must(t, os.MkdirAll(filepath.Join(dir, "mnt"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "state"), 0o700))
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	t.Cleanup(func() {
		for _, point := range mountsBelow(dir) {
			if point != dir {
				t.Errorf("still mounted: %s", point)
			}
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				t.Errorf("unmounting %s: %v", point, err)
			}
		}
	})
	return dir
}

// inNamespace starts a client process in a mount namespace of its own. propagation is how mounts reach it from here:
// "slave" or "private".
func inNamespace(t *testing.T, propagation string) *agent {
	t.Helper()
	a, err := startAgent("agent", 0, "unshare", "--mount", "--propagation", propagation, suite.self)
	must(t, err)
	a.t = t
	t.Cleanup(a.end)
	return a
}

// TestEngineInAnotherNamespace: it does not notice that the daemon is killed or upgraded. When the keeper is killed too
// and mounted again, one to which mounts spread has the mount back without being restarted; one with a private copy
// is told so.
func TestEngineInAnotherNamespace(t *testing.T) {
	dir := sharedDir(t)
	m := newMount(t, modes[0])
	m.path = filepath.Join(dir, "mnt")
	m.start()
	ident, gens := removalSetup(t, m, 2)
	g := gens[0]
	at := filepath.Join(ident, g.name())
	engines := map[string]*agent{"slave": inNamespace(t, "slave"), "private": inNamespace(t, "private")}
	held := map[string]int{}
	for name, a := range engines {
		held[name] = int(a.do(request{Op: "open", Path: filepath.Join(at, g.pages()[0].path)}).N)
	}
	unharmed := func() {
		t.Helper()
		for name, a := range engines {
			a.do(request{Op: "checkfd", FD: held[name], Page: wire(g.pages()[0])})
			a.do(request{Op: "check", Path: at, Gen: &g})
		}
	}
	unharmed()
	old := m.killDaemon()
	unharmed()
	must(t, m.servedByOther(old))
	if out, err := m.ctl("upgrade", m.path); err != nil {
		t.Fatalf("ckptfs upgrade: %v\n%s", err, out)
	}
	unharmed()

	m.killKeeper()
	told := func(name string) {
		t.Helper()
		for _, r := range []request{{Op: "list", Path: m.path}, {Op: "stat", Path: filepath.Join(m.path, "new")}, {Op: "list", Path: ident},
			{Op: "readfile", Path: filepath.Join(at, "manifest.json")}} {
			wantOneOf(t, fmt.Sprintf("%s of %s by the engine in the %s namespace", r.Op, r.Path, name), engines[name].call(r).err(),
				syscall.ENOTCONN, syscall.ECONNABORTED)
		}
	}
	told("slave")
	told("private")
	m.start()
	told("private")
	engines["slave"].do(request{Op: "check", Path: at, Gen: &g})
	more := smallGeneration(g.ID, conversation(80, 500))
	engines["slave"].do(request{Op: "begin", Path: ident, To: "s", Gen: &more})
	engines["slave"].do(request{Op: "writerank", Path: ident, To: "s", Gen: &more, Rank: -1})
	engines["slave"].do(request{Op: "rename-staging", Path: ident, To: "s", Gen: &more})
	must(t, checkGeneration(filepath.Join(ident, more.name()), more))
	for name, want := range map[string]int{"slave": 1, "private": 1} {
		table := string(engines[name].do(request{Op: "readfile", Path: "/proc/self/mountinfo"}).Data)
		if n := strings.Count(table, " "+m.path+" "); n != want {
			t.Errorf("the engine in the %s namespace has %d mounts there, not %d", name, n, want)
		}
	}
}

// TestContainer runs ckptfs in namespaces of its own, engines outside. When the container is killed with all that is in
// it, what was published is in RAM still, and the next container serves it at the same place.
func TestContainer(t *testing.T) {
	dir := sharedDir(t)
	m := newMount(t, modes[0])
	m.path, m.state = filepath.Join(dir, "mnt"), filepath.Join(dir, "state")
	m.within = []string{"unshare", "--mount", "--propagation", "unchanged", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"}
	m.start()
	ident := m.addIdentity(t, "model", newIdentity("container", 2))
	g := smallGeneration(newIdentity("container", 2), conversation(1, 900))
	// Two ranks that ckptfs cannot tell apart: their process ids are not of its namespace.
	ranks := []*agent{newAgent(t), newAgent(t)}
	ranks[0].do(request{Op: "begin", Path: ident, To: "s", Gen: &g})
	for i, a := range ranks {
		a.do(request{Op: "writerank", Path: ident, To: "s", Gen: &g, Rank: i})
	}
	ranks[0].do(request{Op: "rename-staging", Path: ident, To: "s", Gen: &g})
	wantErrno(t, "rename by the rank that comes late", ranks[1].call(request{Op: "rename-staging", Path: ident, To: "s", Gen: &g}).err(), syscall.EEXIST)

	for range 2 {
		m.killKeeper()
		_, err := os.ReadDir(ident)
		wantOneOf(t, "a call when the container is gone", err, syscall.ENOTCONN, syscall.ECONNABORTED)
		m.start()
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	must(t, syscall.Kill(childOf(t, m.cmd.Process.Pid), syscall.SIGTERM))
	if err := m.reap(); err != nil {
		t.Errorf("the container ended with %v after SIGTERM; log:\n%s", err, tail(m.log()))
	}
	if left := mountsBelow(dir); len(left) != 1 {
		t.Errorf("still mounted: %q", left)
	}
}

// childOf is the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	must(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	return child
}
