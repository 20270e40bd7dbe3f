package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTenants: two tenants with uids of their own and model directories of mode 0700 cannot see, list, stat, stage
// into, look up in or delete what is the other's; nor does the owner of the mount open anything by accident, over a
// restart, a backup and a restore.
func TestTenants(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		tenants := map[uint32]*tenant{alice: newTenant(t, m, "hers", alice), bob: newTenant(t, m, "his", bob)}
		check := func(when string) {
			t.Helper()
			tenants[alice].mayNotTouch(t, when, tenants[bob])
			tenants[bob].mayNotTouch(t, when, tenants[alice])
			for _, own := range tenants {
				own.do(request{Op: "check", Path: own.dir(), Gen: &own.g})
			}
		}
		check("at first")
		m.killDaemon()
		check("after a restart")
		m.killKeeper()
		m.start()
		check("after a new mount")

		backup := filepath.Join(m.dir, "backup")
		runQuietly(t, "cp", "-a", m.path, backup)
		emptyMount(t, m)
		if r := ckptfs(t, "restore", backup, m.path); r.code != 0 {
			t.Fatalf("restore: exit code %d: %s", r.code, r.errOut)
		}
		for uid, own := range tenants {
			for _, path := range []string{own.model, own.ident, own.dir()} {
				if st := stat(t, path); st.Uid != uid {
					t.Errorf("%s belongs to %d after a restore, not to %d", path, st.Uid, uid)
				}
			}
		}
		check("after a restore")
	})
}

// TestTenantsShareNothing: the same document and the same tokens in two models. What one tenant has stored does not
// show in the other's plan, link counts, owners or bytes, in RAM and from disk; nor do quotas count it.
func TestTenantsShareNothing(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--allow-other")
	id := newIdentity("tenants", 2)
	g := smallGeneration(id, conversation(1, 700))
	longer := smallGeneration(id, conversation(1, 900))
	hers, his := m.addIdentity(t, "hers", id), m.addIdentity(t, "his", id)
	publish(t, hers, g)
	beginStaging(t, hers, "half", longer).complete(t) // complete pages of a staging are shared within an identity too
	must(t, setXattr(filepath.Dir(his), "quota", "1GiB"))

	s := beginStaging(t, his, "s", g)
	wantPlan(t, s, false, g.pages())
	for rank := range 2 {
		must(t, second(s.writeMissing(rank, 1))) // other bytes than hers
	}
	must(t, s.rename())
	if got := ask(t, his, longer.Tokens); got.Generation != g.name() {
		t.Errorf("his lookup finds %+v", got)
	}
	check := func(when string) {
		t.Helper()
		for ident, copyNo := range map[string]int{hers: 0, his: 1} {
			if err := checkGeneration(filepath.Join(ident, g.name()), g, copyNo); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		for _, p := range g.pages() {
			a, b := stat(t, filepath.Join(hers, g.name(), p.path)), stat(t, filepath.Join(his, g.name(), p.path))
			if a.Ino == b.Ino || b.Nlink != 1 {
				t.Errorf("%s: %s is inode %d in one model and %d, with %d links, in the other", when, p.path, a.Ino, b.Ino, b.Nlink)
			}
		}
	}
	check("in RAM")
	m.stop()
	m.start()
	check("from disk")
	m.stop()
	for _, name := range []string{"index.db", "index.db-wal", "index.db-shm"} {
		must(t, os.RemoveAll(filepath.Join(m.state, name)))
	}
	m.expectWarn("the index was rebuilt")
	m.start()
	check("after a rebuild")
}

// tenant is a user with a model of its own and a generation in it.
type tenant struct {
	user
	model, ident string
	g            generation
}

func newTenant(t *testing.T, m *mount, name string, uid uint32) *tenant {
	t.Helper()
	model := m.addModel(t, name)
	must(t, os.Chmod(model, 0o700))
	must(t, os.Lchown(model, int(uid), int(uid)))
	// Both have the same document and the same tokens: what they share must not show.
	n := &tenant{user: asUser(t, uid), model: model, g: smallGeneration(newIdentity("tenants", 2), conversation(1, 700))}
	got := n.do(request{Op: "identify", Path: model, Data: spaced(n.g.ID.Doc)})
	n.ident = filepath.Join(model, strings.TrimSpace(string(got.Data)))
	n.do(request{Op: "begin", Path: n.ident, To: "s", Gen: &n.g})
	n.do(request{Op: "writerank", Path: n.ident, To: "s", Gen: &n.g, Rank: -1})
	n.do(request{Op: "rename-staging", Path: n.ident, To: "s", Gen: &n.g})
	return n
}

func (n *tenant) dir() string { return filepath.Join(n.ident, n.g.name()) }

// mayNotTouch tries everything on another tenant's tree; all of it is EACCES.
func (n *tenant) mayNotTouch(t *testing.T, when string, other *tenant) {
	t.Helper()
	page := filepath.Join(other.dir(), other.g.pages()[0].path)
	scratch := staging{ident: other.ident, name: "foreign", g: other.g}
	for what, r := range map[string]request{
		"listing the model":      {Op: "list", Path: other.model},
		"listing the identity":   {Op: "list", Path: other.ident},
		"stat of the identity":   {Op: "stat", Path: other.ident},
		"stat of the generation": {Op: "stat", Path: other.dir()},
		"stat of a page":         {Op: "stat", Path: page},
		"reading a page":         {Op: "readfile", Path: page},
		"a lookup":               {Op: "open", Path: filepath.Join(other.ident, ".find"), Flags: os.O_RDWR},
		"an identity":            {Op: "identify", Path: other.model, Data: spaced(newIdentity("foreign", 1).Doc)},
		"a staging":              {Op: "mkdir", Path: scratch.path(), Mode: 0o755},
		"unlinking a page":       {Op: "unlink", Path: page},
		"removing the identity":  {Op: "rmdir", Path: other.ident},
		"unpublishing":           {Op: "rename", Path: other.dir(), To: scratch.path()},
		"linking a page":         {Op: "link", Path: page, To: filepath.Join(n.ident, ".staging", "x")},
		"pinning":                {Op: "setxattr", Path: other.dir(), To: "user.ckptfs.pin", Data: []byte("1")},
		"a chmod":                {Op: "chmod", Path: other.ident, Mode: 0o777},
	} {
		wantErrno(t, when+": "+what+" of another tenant", n.call(r).err(), syscall.EACCES)
	}
	wantOneOf(t, when+": a chmod of another's model", n.call(request{Op: "chmod", Path: other.model, Mode: 0o777}).err(), syscall.EPERM, syscall.EACCES)
	wantOneOf(t, when+": removing another's model", n.call(request{Op: "rmdir", Path: other.model}).err(), syscall.EPERM, syscall.EACCES)
}
