package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// `ckptfs restore`, and what plain tools do in its place.

// backedUp fills a mount, copies it and returns the copy.
func backedUp(t testing.TB, m *mount) (backup string, gens []generation) {
	t.Helper()
	_, gens = sharedTree(t, m, 4)
	backup = filepath.Join(m.dir, "backup")
	runQuietly(t, "cp", "-a", m.path, backup)
	return backup, gens
}

// emptyMount removes everything from a mount.
func emptyMount(t testing.TB, m *mount) {
	t.Helper()
	for _, model := range names(t, m.path) {
		rmSilently(t, filepath.Join(m.path, model))
	}
}

func TestRestoreCommand(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		backup, gens := backedUp(t, m)
		emptyMount(t, m)
		r := ckptfs(t, "restore", backup, m.path)
		if r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.errOut)
		}
		// 4 generations of 2 ranks share their attention pages: each is written once.
		want := map[digest]bool{}
		for _, g := range gens {
			for _, p := range g.pages() {
				want[p.key] = true
			}
		}
		if n := len(want) + 4; !strings.Contains(r.errOut, "restored 5 generations: "+strconv.Itoa(n)+" pages written") {
			t.Errorf("want %d pages written once: %s", n, r.errOut)
		}
		wantSameTree(t, "the restored mount", withoutIno(treeOf(t, m.path))[1:], withoutIno(treeOf(t, backup))[1:])
		ident := filepath.Join(m.path, "org--model", gens[0].ID.dir())
		for _, g := range gens {
			must(t, checkGeneration(filepath.Join(ident, g.name()), g))
			if got := ask(t, ident, g.Tokens); got.Generation != g.name() {
				t.Errorf("a lookup finds %+v", got)
			}
		}
		before := treeOf(t, m.path)
		r = ckptfs(t, "restore", backup, m.path)
		if r.code != 0 || !strings.Contains(r.errOut, "restored 0 generations: 0 pages written") || !strings.Contains(r.errOut, "5 generations were there already") {
			t.Errorf("a second restore: exit code %d: %s", r.code, r.errOut)
		}
		wantSameTree(t, "after a second restore", treeOf(t, m.path), before)
	})
}

// TestRestorePart: --model and --identity choose, and an interrupted restore is gone on with.
func TestRestorePart(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		backup, gens := backedUp(t, m)
		emptyMount(t, m)
		for _, args := range [][]string{{"--model", "org/none"}, {"--identity", "ffff"}} {
			if r := ckptfs(t, append([]string{"restore", backup, m.path}, args...)...); r.code == 0 || !strings.Contains(r.errOut, args[0]) {
				t.Errorf("%q: exit code %d: %s", args, r.code, r.errOut)
			}
		}
		if r := ckptfs(t, "restore", backup, t.TempDir()); r.code != 9 || !strings.Contains(r.errOut, "not a ckptfs mount") {
			t.Errorf("without a mount: exit code %d: %s", r.code, r.errOut)
		}
		if r := ckptfs(t, "restore", t.TempDir(), m.path); r.code != 1 || !strings.Contains(r.errOut, "copy of a whole mount") {
			t.Errorf("without a backup: exit code %d: %s", r.code, r.errOut)
		}
		if r := ckptfs(t, "restore", "--model", "org/model", backup, m.path); r.code != 0 {
			t.Errorf("--model: exit code %d: %s", r.code, r.errOut)
		}
		if got := names(t, m.path); len(got) != 1 {
			t.Errorf("--model restored the models %q", got)
		}
		// Half of a generation is left behind by a restore that was killed.
		ident := filepath.Join(m.path, "org--model", gens[0].ID.dir())
		last := gens[len(gens)-1]
		rmSilently(t, filepath.Join(ident, last.name()))
		saved := filepath.Join(backup, "org--model", gens[0].ID.dir(), last.name())
		half := staging{ident: ident, name: "restore-" + last.name(), g: last}
		must(t, os.Mkdir(half.path(), 0o755))
		manifest, err := os.ReadFile(saved + "/manifest.json")
		must(t, err)
		must(t, half.writeManifest(manifest))
		missing, err := half.missing()
		must(t, err)
		must(t, half.writePage(last.pageAt(missing[0]), 0))
		r := ckptfs(t, "restore", "--identity", gens[0].ID.dir()[:8], backup, m.path)
		if r.code != 0 || !strings.Contains(r.errOut, "restored 1 generations: "+strconv.Itoa(len(missing)-1)+" pages written") {
			t.Errorf("resumed: exit code %d: %s", r.code, r.errOut)
		}
		must(t, checkGeneration(half.target(), last))
	})
}

// TestHalfDeleted: a generation of which rm -r has removed a page and no more is not published, though its directory is
// there. put and restore publish it, and do not take it for one that is.
func TestHalfDeleted(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		g := smallGeneration(newIdentity("half", 2), conversation(1, 900))
		ident := m.addIdentity(t, "model", g.ID)
		dir, _ := layOut(t, g)
		publish(t, ident, g)
		backup := filepath.Join(m.dir, "backup")
		runQuietly(t, "cp", "-a", m.path, backup)
		for _, args := range [][]string{{"put", ident, dir}, {"restore", backup, m.path}} {
			must(t, os.Remove(filepath.Join(ident, g.name(), g.pages()[0].path)))
			if got := names(t, ident); len(got) != 1 {
				t.Fatalf("it is still listed: %q", got)
			}
			ckptfs(t, args...).want(t, 0)
			if got := names(t, ident); len(got) != 2 || got[0] != g.name() {
				t.Fatalf("after %s there is %q", args[0], got)
			}
			must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		}
	})
}

// TestRestoreRefusals: what was tampered with or is incomplete is refused in words; the rest is restored.
func TestRestoreRefusals(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		backup, gens := backedUp(t, m)
		emptyMount(t, m)
		ident := filepath.Join(backup, "org--model", gens[0].ID.dir())
		dir := func(i int) string { return filepath.Join(ident, gens[i].name()) }
		must(t, os.Remove(filepath.Join(dir(0), gens[0].pages()[2].path)))
		short := filepath.Join(dir(1), gens[1].pages()[0].path)
		must(t, os.Remove(short)) // not its other links
		must(t, os.WriteFile(short, []byte("too short"), 0o644))
		manifest, err := os.ReadFile(dir(2) + "/manifest.json")
		must(t, err)
		must(t, os.WriteFile(dir(2)+"/manifest.json", bytes.Replace(manifest, []byte(`"response"`), []byte(`"prompt"`), 1), 0o644))
		other := filepath.Join(backup, "second", newIdentity("other", 1).dir())
		doc, err := os.ReadFile(other + "/identity.json")
		must(t, err)
		must(t, os.WriteFile(other+"/identity.json", bytes.Replace(doc, []byte(`"heads":8`), []byte(`"heads":9`), 1), 0o644))
		link := filepath.Join(ident, "00000001-response-"+hexOf(40))
		must(t, os.Mkdir(link, 0o755))
		must(t, os.Symlink("/etc/passwd", link+"/manifest.json"))

		r := ckptfs(t, "restore", backup, m.path)
		if r.code != 11 {
			t.Errorf("exit code %d: %s", r.code, r.errOut)
		}
		for _, want := range []string{
			gens[0].name() + ": it is incomplete: " + gens[0].pages()[2].path + " is missing",
			gens[1].name() + ": it is incomplete: " + gens[1].pages()[0].path + " has 9 bytes",
			gens[2].name() + ": manifest.json",
			"second/" + newIdentity("other", 1).dir() + ": identity.json is the document of",
			filepath.Base(link) + ": ", "5 parts of the backup were refused", "restored 1 generations",
		} {
			if !strings.Contains(r.errOut, want) {
				t.Errorf("it does not say %q:\n%s", want, r.errOut)
			}
		}
		to := filepath.Join(m.path, "org--model", gens[0].ID.dir())
		if got := names(t, to); len(got) != 2 || got[0] != gens[3].name() {
			t.Errorf("restored: %q", got)
		}
		must(t, checkGeneration(filepath.Join(to, gens[3].name()), gens[3]))
		if got := names(t, filepath.Join(to, ".staging")); len(got) != 0 {
			t.Errorf("stagings are left: %q", got)
		}
	})
}

// TestRestoreWithPlainTools: rsync -aH of one generation and mv, with shared pages linked by their inodes.
func TestRestoreWithPlainTools(t *testing.T) {
	tool(t, "rsync")
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		backup, gens := backedUp(t, m)
		ident := filepath.Join(m.path, "org--model", gens[0].ID.dir())
		saved := filepath.Join(backup, "org--model", gens[0].ID.dir())
		for _, g := range gens[1:] {
			rmSilently(t, filepath.Join(ident, g.name()))
		}
		s := staging{ident: ident, name: "by-hand", g: gens[2]}
		out := runTool(t, "rsync", "-aH", "--stats", filepath.Join(saved, gens[2].name())+"/", s.path()+"/")
		// What the first generation has is there before rsync looks: the plan links it.
		shared := map[digest]bool{}
		for _, p := range gens[0].pages() {
			shared[p.key] = true
		}
		want := 1 // the manifest
		for _, p := range gens[2].pages() {
			if !shared[p.key] {
				want++
			}
		}
		wantPlan(t, s, false, nil)
		t.Logf("%d files are new:\n%s", want, out)
		runQuietly(t, "mv", s.path(), s.target())
		must(t, checkGeneration(s.target(), gens[2]))
		for _, p := range gens[2].pages() {
			if !shared[p.key] {
				continue
			}
			if st := stat(t, filepath.Join(s.target(), p.path)); st.Nlink != 2 {
				t.Errorf("%s has %d links: it was copied", p.path, st.Nlink)
			}
		}
		// A backup whose manifest was changed is not taken.
		bad := staging{ident: ident, name: "bad", g: gens[3]}
		tampered := filepath.Join(saved, gens[3].name(), "manifest.json")
		manifest, err := os.ReadFile(tampered)
		must(t, err)
		must(t, os.WriteFile(tampered, bytes.Replace(manifest, []byte(`"response"`), []byte(`"prompt"`), 1), 0o644))
		must(t, os.Mkdir(bad.path(), 0o755))
		changed, err := os.ReadFile(tampered)
		must(t, err)
		wantErrno(t, "a changed manifest", bad.writeManifest(changed), syscall.EINVAL)
		wantSentence(t, "the reason", bad.reason(t))
		must(t, os.RemoveAll(bad.path()))
	})
}

// TestRestoreMoreThanRAM: a restore goes on while what it restored before leaves RAM.
func TestRestoreMoreThanRAM(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("large", 1)
		ident := m.addIdentity(t, "model", id)
		var gens []generation
		for i := range 8 {
			g := shapedGeneration(id, conversation(uint64(i), 500), 256, 2<<20) // 4 pages of 2 MiB
			gens = append(gens, g)
			dir := publish(t, ident, g)
			must(t, os.Chtimes(dir, time.Time{}, longAgo.Add(time.Duration(i)*time.Hour)))
		}
		backup := filepath.Join(m.dir, "backup")
		runQuietly(t, "cp", "-a", m.path, backup)
		m.stop()
		small := newMount(t, md, "--l1-size", "24MiB")
		small.start()
		r := ckptfs(t, "restore", backup, small.path)
		if r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.errOut)
		}
		last := gens[len(gens)-1] // restored last: the order of the backup's mtimes is that of use
		must(t, checkGeneration(filepath.Join(small.path, "model", id.dir(), last.name()), last))
	})
}

// TestRestoreKilled: a restore that was killed in the middle of its work goes on where it was.
func TestRestoreKilled(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	id := newIdentity("killed", 1)
	ident := m.addIdentity(t, "model", id)
	var gens []generation
	for i := range 24 {
		g := shapedGeneration(id, conversation(uint64(i), 500), 256, 1<<20) // 4 pages of 1 MiB
		gens = append(gens, g)
		publish(t, ident, g)
	}
	must(t, os.Lchown(ident, alice, alice))
	must(t, os.Chmod(filepath.Dir(ident), 0o700))
	backup := filepath.Join(m.dir, "backup")
	runQuietly(t, "cp", "-a", m.path, backup)
	emptyMount(t, m)

	there := func() int {
		entries, _ := os.ReadDir(ident)
		return max(len(entries)-1, 0) // identity.json
	}
	present := 0
	for kills := 0; kills < 3; kills++ {
		cmd := exec.Command(m.binary, "restore", "--quiet", "--jobs", "2", backup, m.path)
		must(t, cmd.Start())
		eventually(t, "a generation is restored", func() error {
			if there() <= present {
				return fmt.Errorf("%d are there", there())
			}
			return nil
		})
		must(t, cmd.Process.Kill())
		cmd.Wait()
		present = there()
	}
	if present == len(gens) {
		t.Skip("the restore was done before it could be killed")
	}
	r := ckptfs(t, "restore", backup, m.path)
	want := fmt.Sprintf("restored %d generations", len(gens)-present)
	if r.code != 0 || !strings.Contains(r.errOut, want) || !strings.Contains(r.errOut, fmt.Sprintf("%d generations were there already", present)) {
		t.Errorf("want %s: exit code %d: %s", want, r.code, r.errOut)
	}
	for _, g := range gens {
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	if left := names(t, filepath.Join(ident, ".staging")); len(left) != 0 {
		t.Errorf("stagings are left: %q", left)
	}
	if st := stat(t, ident); st.Uid != alice || stat(t, filepath.Dir(ident)).Mode&0o777 != 0o700 {
		t.Errorf("the identity belongs to %d, the model's mode is %o", st.Uid, stat(t, filepath.Dir(ident)).Mode)
	}
}
