package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Section 4: a published manifest is accepted in staging without tokens.

// backup copies a generation out of the mount.
func backup(t *testing.T, m *mount, dir string) string {
	t.Helper()
	to := filepath.Join(m.dir, "backup", filepath.Base(dir))
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
		t.Fatalf("cp -a: %v\n%s", err, out)
	}
	return to
}

func TestRestore(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("restore", 2)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		g.Media = []mediaItem{{At: 700, Digest: hexOf(64)}}
		saved := backup(t, m, publish(t, ident, g))
		must(t, os.RemoveAll(filepath.Join(ident, g.name())))
		manifest, err := os.ReadFile(saved + "/manifest.json")
		must(t, err)

		s := staging{ident: ident, name: "r", g: g}
		must(t, os.Mkdir(s.path(), 0o755))
		for what, change := range map[string]func(object){
			"another generation": func(o object) { o["generation"] = strings.Replace(g.name(), "00001000", "00001001", 1) },
			"another digest":     func(o object) { o["generation"] = g.name()[:len(g.name())-1] + "x" },
			"another request's tokens": func(o object) {
				o["prefix"].(object)["digest"] = strings.Repeat("ab", 32)
			},
			"another draft length": func(o object) { o["draft_prefix_len"] = 3 },
			"other groups":         func(o object) { o["page_groups"].([]any)[1].(object)["name"] = "changed" },
			"another identity":     func(o object) { o["identity"] = newIdentity("other", 2).digest().hex() },
			"another world size":   func(o object) { o["world_size"] = 1 },
			"no page digests":      func(o object) { delete(o["page_groups"].([]any)[0].(object), "page_digests") },
			"too few page digests": func(o object) { o["page_groups"].([]any)[0].(object)["page_digests"] = []string{hexOf(64)} },
		} {
			doc := decode(t, manifest)
			change(doc)
			wantErrno(t, what, s.writeManifest(spaced(doc)), syscall.EINVAL)
			wantSentence(t, what, s.reason(t))
		}
		must(t, s.writeManifest(manifest))
		wantPlan(t, s, false, g.pages())
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), g))
		after, err := os.ReadFile(s.target() + "/manifest.json")
		must(t, err)
		if !bytes.Equal(after, manifest) {
			t.Errorf("the restored manifest differs:\n%s\n%s", after, manifest)
		}
		if got := ask(t, ident, g.Tokens); got.Generation != "" {
			t.Errorf("a lookup without the media found %v", got)
		}
		if got := askFor(t, ident, findRequest{Tokens: g.Tokens, Media: g.Media}); got.Generation != g.name() {
			t.Errorf("the restored generation is not found: %v", got)
		}
	})
}

// TestRestoreShares: the keys of a restored generation are those of its tokens.
func TestRestoreShares(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("restore shares", 1)
		ident := m.addIdentity(t, "model", id)
		short, long := smallGeneration(id, conversation(1, 1000)), smallGeneration(id, conversation(1, 2000))
		saved := backup(t, m, publish(t, ident, short))
		must(t, os.RemoveAll(filepath.Join(ident, short.name())))
		publish(t, ident, long)
		manifest, err := os.ReadFile(saved + "/manifest.json")
		must(t, err)
		s := staging{ident: ident, name: "r", g: short}
		must(t, os.Mkdir(s.path(), 0o755))
		must(t, s.writeManifest(manifest))
		wantPlan(t, s, false, short.pages()[3:])
		s.complete(t)
		must(t, s.rename())
		must(t, checkGeneration(s.target(), short))
	})
}

// TestRestoreWithRsync: rsync of one generation into a staging, and mv.
func TestRestoreWithRsync(t *testing.T) {
	rsync, err := exec.LookPath("rsync")
	if err != nil {
		t.Skip("no rsync here")
	}
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("rsync", 2)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		dir := publish(t, ident, g)
		must(t, os.Chtimes(dir+"/"+g.pages()[0].path, longAgo, longAgo))
		saved := backup(t, m, dir)
		must(t, os.RemoveAll(dir))
		s := staging{ident: ident, name: "r", g: g}
		for range 2 { // the second run has nothing left to do
			if out, err := exec.Command(rsync, "-aH", saved+"/", s.path()+"/").CombinedOutput(); err != nil {
				t.Fatalf("rsync: %v\n%s", err, out)
			}
		}
		wantPlan(t, s, false, nil)
		if out, err := exec.Command("mv", s.path(), s.target()).CombinedOutput(); err != nil {
			t.Fatalf("mv: %v\n%s", err, out)
		}
		must(t, checkGeneration(s.target(), g))
		if st := stat(t, dir+"/"+g.pages()[0].path); st.Mtim.Sec != longAgo.Unix() {
			t.Error("rsync's mtime is not kept")
		}
	})
}

// TestUnpublish: a generation that is renamed into .staging stops being
// published at once, and can be published again.
func TestUnpublish(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("unpublish", 2)
		ident := m.addIdentity(t, "model", id)
		short, g := smallGeneration(id, conversation(1, 500)), smallGeneration(id, conversation(1, 1000))
		publish(t, ident, short)
		dir := publish(t, ident, g)
		manifest, err := os.ReadFile(dir + "/manifest.json")
		must(t, err)
		f, err := os.Open(filepath.Join(dir, g.pages()[0].path))
		must(t, err)
		defer f.Close()
		taken := beginStaging(t, ident, "taken", smallGeneration(id, conversation(3, 300)))

		s := staging{ident: ident, name: "back", g: g}
		wantOneOf(t, "onto a staging that is there", syscall.Rename(dir, taken.path()), syscall.EEXIST, syscall.ENOTEMPTY)
		wantErrno(t, "deeper into a staging", syscall.Rename(dir, taken.file("deep")), syscall.EPERM)
		if out, err := exec.Command("mv", dir, s.path()).CombinedOutput(); err != nil {
			t.Fatalf("mv: %v\n%s", err, out)
		}
		wantMissing(t, dir)
		if contains(names(t, ident), g.name()) {
			t.Error("still listed")
		}
		if got := ask(t, ident, g.Tokens); got.Generation != short.name() {
			t.Errorf("found %v, want the shorter generation", got)
		}
		must(t, checkOpenPage(f, g.pages()[0]))
		must(t, checkGeneration(s.path(), g))
		wantPlan(t, s, false, nil)
		must(t, s.rename())
		must(t, checkGeneration(dir, g))
		after, err := os.ReadFile(dir + "/manifest.json")
		must(t, err)
		if !bytes.Equal(after, manifest) {
			t.Error("the manifest differs after unpublishing and publishing again")
		}
		if got := ask(t, ident, g.Tokens); got.Generation != g.name() {
			t.Errorf("found %v", got)
		}
		must(t, os.RemoveAll(taken.path()))
	})
}
