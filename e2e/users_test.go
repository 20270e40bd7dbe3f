package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Other users: modes and owners are honoured as on any filesystem.

const (
	alice = 12345
	bob   = 12346
)

// user is a client process with a uid of its own.
type user struct{ *agent }

func asUser(t testing.TB, uid uint32) user { t.Helper(); return user{spawn(t, "agent", uid)} }

func (u user) path(op, path string) error {
	return u.call(request{Op: op, Path: path, Mode: 0o755}).err()
}

func (u user) write(path string, data []byte) error {
	return u.call(request{Op: "writefile", Path: path, Data: data, Mode: 0o644}).err()
}

func TestUnprivilegedPublishes(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		model := m.addModel(t, "shared")
		must(t, os.Chmod(model, 0o777))
		closed := m.addModel(t, "closed")
		id := newIdentity("users", 2)
		a, b := asUser(t, alice), asUser(t, bob)

		// In a model that is not hers, nothing comes into being.
		if rep := a.call(request{Op: "identify", Path: closed, Data: spaced(id.Doc)}); rep.err() == nil {
			t.Errorf(".identify made a directory in a model of mode 0755: %q", rep.Data)
		}
		if got := names(t, closed); len(got) != 0 {
			t.Errorf("the closed model lists %q", got)
		}
		wantErrno(t, "mkdir in the root", a.path("mkdir", filepath.Join(m.path, "mine")), syscall.EACCES)
		wantErrno(t, "mkdir in a closed model", a.path("mkdir", filepath.Join(closed, id.dir())), syscall.EACCES)

		got := a.do(request{Op: "identify", Path: model, Data: spaced(id.Doc)})
		ident := filepath.Join(model, strings.TrimSuffix(string(got.Data), "\n"))
		// Whose the directory is that .identify makes, the contract does not say.
		must(t, os.Chown(ident, alice, alice))
		must(t, os.Chmod(ident, 0o755))
		g := smallGeneration(id, conversation(1, 1000))
		a.do(request{Op: "begin", Path: ident, To: "s", Gen: &g})
		a.do(request{Op: "writerank", Path: ident, To: "s", Gen: &g, Rank: -1})
		s := staging{ident: ident, name: "s", g: g}
		bobMayNothing(t, b, s)
		a.do(request{Op: "rename-staging", Path: ident, To: "s", Gen: &g})
		must(t, checkGeneration(s.target(), g))
		for _, path := range []string{s.target(), s.target() + "/rank-0", s.target() + "/" + g.pages()[0].path, s.target() + "/manifest.json"} {
			if st := stat(t, path); st.Uid != alice || st.Gid != alice {
				t.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
			}
		}
		readersAndWriters(t, a, b, s)
	})
}

// bobMayNothing: a stranger can neither write into a staging, nor publish it, nor remove it.
func bobMayNothing(t *testing.T, b user, s staging) {
	t.Helper()
	pg := s.file(s.g.pages()[0].path)
	denied := []syscall.Errno{syscall.EACCES, syscall.EPERM}
	wantOneOf(t, "his own staging", b.path("mkdir", filepath.Join(s.ident, ".staging", "bob")), denied...)
	wantOneOf(t, "a file in hers", b.write(s.file(".scratch"), nil), denied...)
	wantOneOf(t, "unlink of a page", b.path("unlink", pg), denied...)
	wantOneOf(t, "chmod of a page", b.path("chmod", pg), denied...)
	wantOneOf(t, "publication", b.call(request{Op: "rename", Path: s.path(), To: s.target()}).err(), denied...)
	wantOneOf(t, "rmdir of her staging", b.path("rmdir", s.path()), append(denied, syscall.ENOTEMPTY)...)
}

// readersAndWriters: everybody may read and look up what is open to all; only the owner removes.
func readersAndWriters(t *testing.T, a, b user, s staging) {
	t.Helper()
	dir := s.target()
	denied := []syscall.Errno{syscall.EACCES, syscall.EPERM}
	b.do(request{Op: "check", Path: dir, Gen: &s.g})
	fd := int(b.do(request{Op: "open", Path: filepath.Join(s.ident, ".find"), Flags: os.O_RDWR}).N)
	b.do(request{Op: "write", FD: fd, Data: findRequest{Tokens: s.g.Tokens}.bytes()})
	if got := b.do(request{Op: "reply", FD: fd}); !strings.Contains(string(got.Data), s.g.name()) {
		t.Errorf("another user's lookup: %s", got.Data)
	}
	b.do(request{Op: "close", FD: fd})
	// .identify answers what is there to everybody.
	if got := b.do(request{Op: "identify", Path: filepath.Dir(s.ident), Data: spaced(s.g.ID.Doc)}); !strings.HasPrefix(string(got.Data), s.g.ID.dir()) {
		t.Errorf("another user's .identify: %s", got.Data)
	}
	pg := filepath.Join(dir, s.g.pages()[0].path)
	wantOneOf(t, "unlink of a published page", b.path("unlink", pg), denied...)
	wantOneOf(t, "unlink of the manifest", b.path("unlink", dir+"/manifest.json"), denied...)
	wantOneOf(t, "rmdir of a rank", b.path("rmdir", dir+"/rank-0"), append(denied, syscall.ENOTEMPTY)...)
	wantOneOf(t, "unpublishing", b.call(request{Op: "rename", Path: dir, To: s.path()}).err(), denied...)
	wantOneOf(t, "chmod", b.path("chmod", dir), denied...)
	wantOneOf(t, "chown", b.call(request{Op: "chown", Path: dir, Off: bob, Len: bob}).err(), denied...)
	wantOneOf(t, "writing a page", b.write(pg, []byte("x")), append(denied, syscall.EROFS)...)
	if got := ask(t, s.ident, s.g.Tokens); got.Generation != s.g.name() {
		t.Errorf("after a stranger's attempts: %+v", got)
	}
	must(t, checkGeneration(dir, s.g))

	// 0700 shuts others out, at once and altogether.
	must(t, a.call(request{Op: "chmod", Path: s.ident, Mode: 0o700}).err())
	wantErrno(t, "stat below a closed identity", b.path("stat", pg), syscall.EACCES)
	wantErrno(t, "listing it", b.path("list", s.ident), syscall.EACCES)
	wantErrno(t, ".find in it", b.call(request{Op: "open", Path: filepath.Join(s.ident, ".find"), Flags: os.O_RDWR}).err(), syscall.EACCES)
	a.do(request{Op: "check", Path: dir, Gen: &s.g})

	a.do(request{Op: "rename", Path: dir, To: s.path()})
	a.do(request{Op: "rename", Path: s.path(), To: dir})
	a.do(request{Op: "unlink", Path: pg})
	wantMissing(t, pg)
}

func TestControlIsRootOnly(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		a := asUser(t, alice)
		ctl := filepath.Join(m.path, ".ckptfs")
		wantErrno(t, "listing .ckptfs", a.path("list", ctl), syscall.EACCES)
		wantErrno(t, "reading status.json", a.path("readfile", m.statusPath()), syscall.EACCES)
		wantErrno(t, "stat of it", a.path("stat", m.statusPath()), syscall.EACCES)
		wantOneOf(t, "chmod of .ckptfs", a.path("chmod", ctl), syscall.EPERM, syscall.EACCES)
		if got := names(t, ctl); !contains(got, "status.json") {
			t.Errorf("root sees %q in .ckptfs", got)
		}
	})
}

// TestWithoutAllowOther: other users have no access at all.
func TestWithoutAllowOther(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other=false")
		m.addModel(t, "model")
		wantErrno(t, "listing the root", asUser(t, alice).path("list", m.path), syscall.EACCES)
	})
}

// TestChangedPermissionsAtOnce: what follows a directory's mode and owner does so at once: .staging, .find and .identify,
// and the directories below a generation.
func TestChangedPermissionsAtOnce(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		id := newIdentity("perms", 1)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 400))
		dir := publish(t, ident, g)
		stagings, rank := filepath.Join(ident, ".staging"), filepath.Join(dir, "rank-0")
		follow := []string{stagings, filepath.Join(ident, ".find"), rank, filepath.Dir(filepath.Join(dir, g.pages()[0].path))}
		for _, path := range append(follow, filepath.Join(m.path, "model", ".identify")) {
			stat(t, path) // the kernel keeps it
		}
		b := asUser(t, bob)
		must(t, os.Chmod(ident, 0o777))
		must(t, b.path("mkdir", filepath.Join(stagings, "his")))
		must(t, os.Chmod(ident, 0o755))
		wantErrno(t, "a staging in what has been closed", b.path("mkdir", filepath.Join(stagings, "again")), syscall.EACCES)
		must(t, os.Lchown(ident, alice, alice))
		must(t, os.Lchown(dir, alice, alice))
		must(t, os.Lchown(filepath.Join(m.path, "model"), alice, alice))
		for _, path := range append(follow, filepath.Join(m.path, "model", ".identify")) {
			if st := stat(t, path); st.Uid != alice {
				t.Errorf("%s belongs to %d", path, st.Uid)
			}
		}
		must(t, os.Chmod(dir, 0o700))
		if st := stat(t, rank); st.Mode&0o777 != 0o700 {
			t.Errorf("the rank's mode is %o", st.Mode&0o777)
		}
		rmSilently(t, filepath.Join(stagings, "his"))
	})
}

// TestGroupOfTheDirectory: below a model with the set-group-ID bit all belongs to the model's group.
func TestGroupOfTheDirectory(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		const team = 4242
		model := m.addModel(t, "team")
		must(t, os.Lchown(model, 0, team))
		must(t, syscall.Chmod(model, 0o2777))
		a := asUser(t, alice)
		id := newIdentity("group", 1)
		ident := filepath.Join(model, strings.TrimSuffix(string(a.do(request{Op: "identify", Path: model, Data: spaced(id.Doc)}).Data), "\n"))
		g := smallGeneration(id, conversation(1, 400))
		a.do(request{Op: "begin", Path: ident, To: "s", Gen: &g})
		a.do(request{Op: "writerank", Path: ident, To: "s", Gen: &g, Rank: -1})
		a.do(request{Op: "rename-staging", Path: ident, To: "s", Gen: &g})
		byHand := filepath.Join(model, newIdentity("by hand", 1).dir())
		must(t, a.path("mkdir", byHand))
		dir := filepath.Join(ident, g.name())
		page := filepath.Join(dir, g.pages()[0].path)
		for path, mode := range map[string]uint32{ident: 0o2777, byHand: 0o2755, dir: 0o2755, filepath.Dir(page): 0o2755, page: 0o444, filepath.Join(dir, "manifest.json"): 0o444} {
			if st := stat(t, path); st.Uid != alice || st.Gid != team || st.Mode&0o7777 != mode {
				t.Errorf("%s belongs to %d:%d, with mode %o, want %o", path, st.Uid, st.Gid, st.Mode&0o7777, mode)
			}
		}
	})
}

// TestAllowOther: without it nobody but who mounted gets in, whatever the modes say.
func TestAllowOther(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--allow-other=false")
	model := m.addModel(t, "open")
	must(t, os.Chmod(model, 0o777))
	a := asUser(t, alice)
	for _, path := range []string{m.path, model} {
		wantErrno(t, "listing "+path, a.call(request{Op: "list", Path: path}).err(), syscall.EACCES)
		wantErrno(t, "stat of "+path, a.call(request{Op: "stat", Path: path}).err(), syscall.EACCES)
	}
}

// TestReplayInAStickyDirectory: where everybody may write and remove only what is his own, what another user has published
// is published all the same.
func TestReplayInAStickyDirectory(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		g := smallGeneration(newIdentity("sticky", 1), conversation(1, 900))
		ident := m.addIdentity(t, "model", g.ID)
		must(t, os.Chmod(ident, 0o777|os.ModeSticky))
		dir, _ := layOut(t, g)
		must(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755))
		for _, put := range []struct {
			uid uint32
			how string
		}{{alice, "published: "}, {bob, "was published already"}} {
			cmd := exec.Command(suite.binary, "put", ident, dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: put.uid, Gid: put.uid}}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), put.how) {
				t.Errorf("put by %d: %v, %q", put.uid, err, out)
			}
		}
		if got := names(t, filepath.Join(ident, ".staging")); len(got) != 0 {
			t.Errorf("there are stagings left: %q", got)
		}
	})
}
