package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Section 8 where it hurts: conversations that do not simply go on, then
// pressure on RAM, then they do.

// TestRetentionBranches: retries, aborted turns and rewritten answers.
func TestRetentionBranches(t *testing.T) {
	m, _, _ := retentionMount(t, narrowRAM)
	inIdentity := func(name string, f func(ident string, id identity, prompt, response generation)) {
		id := newIdentity(t.Name()+name, 1)
		ident := m.addIdentity(t, "model", id)
		prompt, response := first(t, ident, id)
		f(ident, id, prompt, response)
	}
	inIdentity("retry", func(ident string, id identity, prompt, response generation) {
		retry := turn(id, "prompt", "retry", branch(prompt.Tokens, 5, 10)) // before the response ends
		publish(t, ident, retry)
		wantState(t, ident, response, "current")
		m.press(t, ident, id, 12)
		wantFound(t, ident, branch(response.Tokens, 6, 30), response)
		wantFound(t, ident, branch(retry.Tokens, 7, 30), retry)
		wantFound(t, ident, branch(prompt.Tokens, 8, 30), prompt)
	})
	inIdentity("abort", func(ident string, id identity, prompt, aborted generation) {
		resumed := turn(id, "prompt", "r2", branch(prompt.Tokens, 5, 40))
		publish(t, ident, resumed)
		wantPassed(t, ident, aborted)
		wantState(t, ident, prompt, "fork")
		m.press(t, ident, id, 12)
		wantFound(t, ident, branch(resumed.Tokens, 6, 30), resumed)
		wantFound(t, ident, branch(aborted.Tokens, 7, 30), prompt) // unwritten it went, and its parent is there
	})
	inIdentity("rewrite", func(ident string, id identity, prompt, response generation) {
		for n := range 2 {
			next := turn(id, "prompt", fmt.Sprint("t", n), branch(prompt.Tokens, uint64(10+n), 25))
			publish(t, ident, next)
			wantPassed(t, ident, response)
			wantState(t, ident, prompt, "fork")
			m.press(t, ident, id, 12)
			wantFound(t, ident, branch(next.Tokens, 6, 30), next)
			prompt, response = next, turn(id, "response", fmt.Sprint("t", n), branch(next.Tokens, uint64(20+n), 10))
			publish(t, ident, response)
		}
	})
}

// wantPassed wants g superseded; where RAM is short it may be gone already.
func wantPassed(t testing.TB, ident string, g generation) {
	t.Helper()
	if state, err := xattr(filepath.Join(ident, g.name()), "state"); err == nil && state != "superseded" {
		t.Errorf("%s is %s, want it superseded", g.name(), state)
	}
}

// TestRetentionTwoIdentities: the same tokens and the same requests under another
// identity are another conversation.
func TestRetentionTwoIdentities(t *testing.T) {
	m, ident, id := retentionMount(t)
	otherID := newIdentity("another", 1)
	other := m.addIdentity(t, "model", otherID)
	_, response := first(t, ident, id)
	otherPrompt, otherResponse := first(t, other, otherID)
	publish(t, ident, turn(id, "prompt", "r2", branch(response.Tokens, 2, 30)))
	wantState(t, ident, response, "fork")
	wantState(t, other, otherResponse, "current")
	wantState(t, other, otherPrompt, "current")
	publish(t, other, turn(otherID, "prompt", "r2", branch(otherPrompt.Tokens, 2, 30))) // here the answer is rewritten
	wantState(t, other, otherResponse, "superseded")
	wantState(t, ident, response, "fork")
}

// TestRetentionRestored: what comes back, from .staging or from a backup,
// supersedes nothing; what is published anew does.
func TestRetentionRestored(t *testing.T) {
	_, ident, id := retentionMount(t)
	prompt, response := first(t, ident, id)
	next := turn(id, "prompt", "r2", branch(response.Tokens, 2, 30))
	dir := publish(t, ident, next)
	wantState(t, ident, prompt, "superseded")
	wantFound(t, ident, prompt.Tokens, prompt)
	back := func(how string, f func(staging)) {
		t.Helper()
		manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
		must(t, err)
		s := staging{ident: ident, name: how, g: next}
		must(t, os.Rename(dir, s.path()))
		if f != nil {
			rmSilently(t, s.path())
			must(t, os.Mkdir(s.path(), 0o755))
			f(s)
			must(t, s.writeManifest(manifest))
			s.complete(t)
		}
		must(t, s.rename())
		wantState(t, ident, prompt, "current")
		wantState(t, ident, response, "fork")
	}
	back("moved", nil)
	back("restored", func(staging) {})
	back("with tokens", func(s staging) { must(t, os.WriteFile(s.file("tokens"), tokenBytes(next.Tokens), 0o644)) })
	rmSilently(t, dir)
	publish(t, ident, next)
	wantState(t, ident, prompt, "superseded")
	wantState(t, ident, response, "fork")
}

// TestRetentionLimit: beyond --max-generations the least recently used go, but
// none that is leased.
func TestRetentionLimit(t *testing.T) {
	_, ident, id := retentionMount(t, "--max-generations=6")
	var gs []generation
	for n := range 6 {
		g := turn(id, "prompt", fmt.Sprint("r", n), conversation(uint64(n), 100))
		publish(t, ident, g)
		gs = append(gs, g)
	}
	lease, err := openFind(ident)
	must(t, err)
	defer lease.Close()
	_, err = converse(lease, findRequest{Tokens: gs[0].Tokens}.bytes())
	must(t, err)
	open, err := os.Open(filepath.Join(ident, gs[1].name(), gs[1].pages()[0].path))
	must(t, err)
	defer open.Close()
	must(t, err)
	wantFound(t, ident, gs[2].Tokens, gs[2]) // is warm again
	for n := range 3 {
		publish(t, ident, turn(id, "prompt", fmt.Sprint("later", n), conversation(uint64(100+n), 100)))
	}
	for n, g := range gs {
		_, err := os.Lstat(filepath.Join(ident, g.name()))
		if there, want := err == nil, n < 3; there != want {
			t.Errorf("generation %d is there: %v, want %v", n, there, want)
		}
	}
	must(t, checkOpenPage(open, gs[1].pages()[0]))
}

// TestRetentionEvictionLeavesIndexAlone: pages that are on disk leave RAM, and
// come back, without any change of the index.
func TestRetentionEvictionLeavesIndexAlone(t *testing.T) {
	m, ident, id := retentionMount(t, narrowRAM)
	var gs []generation
	for n := range 7 {
		g := turn(id, "prompt", fmt.Sprint("r", n), conversation(uint64(n), 300))
		makeDurable(t, publish(t, ident, g))
		gs = append(gs, g)
	}
	large := beginStaging(t, ident, "large", turn(id, "prompt", "large", conversation(100, 320))) // ids are there from now on
	before := m.whole(t).Counters
	must(t, os.RemoveAll(large.path()))
	beginStaging(t, ident, "larger", turn(id, "prompt", "larger", conversation(100, 64*40)))
	after := m.whole(t).Counters
	if after["evicted_pages"] == before["evicted_pages"] {
		t.Error("nothing was evicted")
	}
	must(t, os.RemoveAll(filepath.Join(ident, ".staging", "larger")))
	for _, g := range gs {
		wantFound(t, ident, g.Tokens, g)
	}
	last := m.whole(t).Counters
	if last["loaded_pages"] == before["loaded_pages"] {
		t.Error("nothing came back")
	}
	if n := last["index_changes"] - before["index_changes"]; n != 0 {
		t.Errorf("the index was changed %d times", n)
	}
}

// makeDurable syncs a generation.
func makeDurable(t testing.TB, dir string) {
	t.Helper()
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	must(t, d.Sync())
}

// TestRetentionDiskBound: where the disk tier is full, superseded generations go
// first, then the coldest, as wholes; what current ones share stays.
func TestRetentionDiskBound(t *testing.T) {
	m, ident, id := retentionMount(t, "--l2-size=4MiB", "--l2-min-free=0")
	prompt, response := first(t, ident, id)
	for _, g := range []generation{prompt, response} {
		makeDurable(t, filepath.Join(ident, g.name()))
	}
	next := turn(id, "prompt", "r2", branch(response.Tokens, 2, 40))
	makeDurable(t, publish(t, ident, next))
	wantState(t, ident, prompt, "superseded")
	watched := []generation{prompt, response, next}
	for n := range 3 {
		g := turn(id, "prompt", fmt.Sprint("r", n+10), conversation(uint64(50+n), 300))
		makeDurable(t, publish(t, ident, g))
		watched = append(watched, g)
	}
	wantFound(t, ident, branch(next.Tokens, 3, 10), next) // warmer than the others
	var went []int
	for n := range 12 {
		makeDurable(t, publish(t, ident, turn(id, "prompt", fmt.Sprint("pressure", n), conversation(uint64(500+n), 300))))
		for k, g := range watched {
			if _, err := os.ReadFile(filepath.Join(ident, g.name(), "manifest.json")); err != nil && !slices.Contains(went, k) {
				went = append(went, k)
			}
		}
		if len(went) == 0 || slices.Contains(went, 2) {
			continue
		}
		must(t, checkGeneration(filepath.Join(ident, next.name()), next)) // shares what goes
	}
	if want := []int{0, 1, 3, 4}; len(went) != 6 || !slices.Equal(went[:4], want) {
		t.Errorf("they went in the order %v, want %v first, and all in the end", went, want)
	}
	if n := m.whole(t).Counters["generations_retired_disk"]; n < 6 {
		t.Errorf("%d generations were retired for the disk's sake", n)
	}
	if r := ask(t, ident, prompt.Tokens); !strings.Contains(r.Reason, "the disk tier was full") {
		t.Errorf("found %+v", r)
	}
}

// TestRetentionLastCopy: pages lose their last copy by RAM's pressure and by rm.
// The lookup falls back to what is there, in the same call.
func TestRetentionLastCopy(t *testing.T) {
	m, ident, id := retentionMount(t, narrowRAM, "--supersede-grace=1ms", "--retention=recency")
	root := turn(id, "instruction", "root", conversation(1, 100))
	publish(t, ident, root)
	prompt, response := first(t, ident, id)
	publish(t, ident, turn(id, "prompt", "r2", branch(response.Tokens, 2, 30)))
	wantFound(t, ident, branch(prompt.Tokens, 3, 30), prompt) // superseded, its grace over, still there: current
	wantState(t, ident, prompt, "current")
	publish(t, ident, turn(id, "prompt", "r3", branch(response.Tokens, 4, 30)))
	wantState(t, ident, prompt, "superseded")
	m.press(t, ident, id, 12)
	wantMissing(t, filepath.Join(ident, prompt.name()))
	wantFound(t, ident, branch(prompt.Tokens, 3, 30), root)
	wantFound(t, ident, branch(response.Tokens, 3, 30), response)
	rmSilently(t, filepath.Join(ident, response.name()))
	wantFound(t, ident, branch(response.Tokens, 3, 30), root)
	rmSilently(t, filepath.Join(ident, root.name()))
	if r := ask(t, ident, branch(response.Tokens, 3, 30)); !strings.Contains(r.Reason, "it was deleted") {
		t.Errorf("found %+v", r)
	}
}

// TestRetentionByHand: pages lose their last copy, or get one, behind the
// daemon's back: in the disk tier, and with the RAM tier at a power loss.
func TestRetentionByHand(t *testing.T) {
	m, ident, id := retentionMount(t)
	m.expectKilled()
	m.expectWarn("a page is lost")
	m.expectWarn("disk tier: ")
	gen := func(seed uint64, n int) generation {
		return turn(id, "prompt", fmt.Sprint(seed, n), conversation(seed, n))
	}
	short, long, unsaved := gen(1, 100), gen(1, 200), gen(1, 300)
	put, foreign, whole := gen(2, 150), gen(3, 150), gen(4, 150)
	for _, g := range []generation{short, long, put, foreign, whole} {
		makeDurable(t, publish(t, ident, g))
	}
	publish(t, ident, unsaved)
	// Another process keeps the objects of one, and puts them back when the index knows of none.
	aside := m.objects(t, put)
	rmSilently(t, filepath.Join(ident, put.name()))
	publish(t, ident, put)
	for path, object := range aside {
		wantMissing(t, path)
		must(t, os.WriteFile(path, object, 0o600))
	}
	m.killKeeper()
	must(t, unix.Unmount(filepath.Join(m.state, "ram"), unix.MNT_DETACH))
	must(t, os.Remove(m.object(long.pageAt(pagePath(0, "target-draft-auxiliary", 0)))))
	own := pagePath(0, "target.recurrent.0", 2)
	b, err := os.ReadFile(m.object(whole.pageAt(own)))
	must(t, err)
	must(t, os.WriteFile(m.object(foreign.pageAt(own)), b, 0o600))
	m.start()

	wantFound(t, ident, unsaved.Tokens, short) // neither that which was not saved, nor that whose page was removed
	wantFound(t, ident, put.Tokens, put)
	wantFound(t, ident, whole.Tokens, whole)
	dir := filepath.Join(ident, foreign.name())
	if err := checkPage(dir, foreign.pageAt(own)); err == nil {
		t.Error("a page whose object is another page's can be read")
	} else {
		wantOneOf(t, "reading it", err, unix.EIO, unix.ENOENT)
	}
	eventually(t, "the loss is found", func() error {
		if r := ask(t, ident, foreign.Tokens); r.Generation != "" || !strings.Contains(r.Reason, "a page of it was lost") {
			return fmt.Errorf("found %+v", r)
		}
		return nil
	})
}

// storedKey is the key under which a model's page is stored (pages/FORMAT.md).
func (p page) storedKey(model string) string {
	return newHasher("ckptfs page of a model v1\x00").str(model).bytes(p.key[:]).sum().hex()
}

// object is where the disk tier keeps a page of the model "model".
func (m *mount) object(p page) string {
	name := p.storedKey("model")
	return filepath.Join(m.state, "disk", name[:2], name)
}

// objects reads what the disk tier has of a generation.
func (m *mount) objects(t testing.TB, g generation) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, p := range g.pages() {
		b, err := os.ReadFile(m.object(p))
		must(t, err)
		all[m.object(p)] = b
	}
	return all
}
