package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Section 8: what a prompt supersedes, and what pressure on RAM then takes.

// A page of the tests of retention, and a RAM tier that holds few generations
// of them.
const (
	bigPage   = 64 << 10
	narrowRAM = "--l1-size=4MiB"
)

// turn is a generation of a request, with large pages.
func turn(id identity, kind, request string, tokens []uint32) generation {
	g := shapedGeneration(id, tokens, 64, bigPage)
	g.Kind, g.Request = kind, request
	return g
}

// branch continues tokens with n others, which seed distinguishes.
func branch(tokens []uint32, seed uint64, n int) []uint32 {
	return slices.Concat(tokens, conversation(1000+seed, n))
}

// first is the first turn of a conversation: a prompt of 200 tokens, and its
// response of 20 more.
func first(t testing.TB, ident string, id identity) (prompt, response generation) {
	t.Helper()
	prompt = turn(id, "prompt", "r1", conversation(1, 200))
	response = turn(id, "response", "r1", branch(prompt.Tokens, 1, 20))
	publish(t, ident, prompt)
	publish(t, ident, response)
	return prompt, response
}

func wantState(t testing.TB, ident string, g generation, state string) {
	t.Helper()
	wantXattr(t, filepath.Join(ident, g.name()), "state", state)
}

// press publishes other generations, of n conversations, until eviction has
// surely had to make room, and waits until it has.
func (m *mount) press(t testing.TB, ident string, id identity, n int) {
	t.Helper()
	for range n {
		m.pressed++
		publish(t, ident, turn(id, "prompt", fmt.Sprint("pressure-", m.pressed), conversation(5000+m.pressed, 320)))
	}
	m.awaitRest(t)
}

// awaitRest waits until neither eviction nor loading has anything to do.
func (m *mount) awaitRest(t testing.TB) {
	t.Helper()
	eventually(t, "eviction comes to rest", func() error {
		if !m.whole(t).AtRest {
			return fmt.Errorf("at_rest is false")
		}
		return nil
	})
}

// wholeStatus is what the tests of retention and deletion want of status.json.
type wholeStatus struct {
	AtRest   bool `json:"at_rest"`
	Removing int  `json:"removing"`
	RAM      struct {
		UsedBytes int64 `json:"used_bytes"`
	} `json:"ram"`
	Counters map[string]int64 `json:"counters"`
}

func (m *mount) whole(t testing.TB) (s wholeStatus) {
	t.Helper()
	b, err := os.ReadFile(m.statusPath())
	must(t, err)
	must(t, json.Unmarshal(b, &s))
	return s
}

// wantFound looks tokens up, wants g, and reads every byte of it.
func wantFound(t testing.TB, ident string, tokens []uint32, g generation) {
	t.Helper()
	f, err := openFind(ident)
	must(t, err)
	defer f.Close()
	got, err := converse(f, findRequest{Tokens: tokens}.bytes())
	must(t, err)
	if got.Generation != g.name() {
		t.Errorf("%d tokens: found %+v, want %s", len(tokens), got, g.name())
		return
	}
	must(t, checkGeneration(filepath.Join(ident, g.name()), g))
}

func retentionMount(t *testing.T, flags ...string) (m *mount, ident string, id identity) {
	t.Helper()
	requireFUSE(t)
	t.Helper()
	m = mountFS(t, mode{}, append([]string{"--compress=off"}, flags...)...)
	id = newIdentity(t.Name(), 1)
	return m, m.addIdentity(t, "model", id), id
}

// A title request extends the tip; the conversation goes on from it later.
func TestRetentionTitleRequest(t *testing.T) {
	m, ident, id := retentionMount(t, narrowRAM)
	prompt, response := first(t, ident, id)
	title := turn(id, "prompt", "title", branch(response.Tokens, 2, 10))
	publish(t, ident, title)
	wantState(t, ident, response, "fork")
	wantState(t, ident, prompt, "superseded")
	wantXattr(t, filepath.Join(ident, prompt.name()), "superseded_by", title.name())
	m.press(t, ident, id, 12)
	wantFound(t, ident, branch(response.Tokens, 3, 30), response)
}

// A sub-agent of two turns leaves the fork point behind, superseded; within the
// grace period it is still there, and a lookup makes it current again.
func TestRetentionSubAgent(t *testing.T) {
	m, ident, id := retentionMount(t, narrowRAM)
	_, response := first(t, ident, id)
	tip := response.Tokens
	for i := range 2 {
		request := fmt.Sprint("sub-", i)
		tip = branch(tip, uint64(10+i), 10)
		publish(t, ident, turn(id, "prompt", request, tip))
		tip = branch(tip, uint64(20+i), 10)
		publish(t, ident, turn(id, "response", request, tip))
	}
	wantState(t, ident, response, "superseded fork")
	wantFound(t, ident, branch(response.Tokens, 3, 30), response)
	wantState(t, ident, response, "fork")
	m.press(t, ident, id, 12)
	wantFound(t, ident, branch(response.Tokens, 3, 30), response)
}

// After the grace period a superseded fork point goes before anything current,
// unwritten, and a lookup is told why.
func TestRetentionAfterGrace(t *testing.T) {
	m, ident, id := retentionMount(t, narrowRAM, "--supersede-grace=1ms", "--retention=recency")
	prompt, response := first(t, ident, id)
	tip := response.Tokens
	for i := range 2 {
		tip = branch(tip, uint64(10+i), 10)
		publish(t, ident, turn(id, "prompt", fmt.Sprint("sub-", i), tip))
	}
	m.press(t, ident, id, 12)
	for _, g := range []generation{prompt, response} {
		wantMissing(t, filepath.Join(ident, g.name()))
	}
	if r := ask(t, ident, branch(response.Tokens, 3, 30)); r.Generation != "" || r.Reason == "" {
		t.Errorf("found %+v", r)
	}
	if n := m.whole(t).Counters["generations_retired_superseded"]; n < 2 {
		t.Errorf("%d generations retired because they were superseded", n)
	}
	story := ckptfs(t, "why", filepath.Join(ident, response.name()))
	story.want(t, 0)
	for _, what := range []string{"published by request r1", "a fork point: ", "superseded by ", "retired: it was superseded"} {
		if !strings.Contains(story.out, what) {
			t.Errorf("its story does not say %q: %s", what, story.out)
		}
	}
	ckptfs(t, "why", filepath.Join(ident, "00000001-prompt-none")).want(t, 10, "nothing is remembered")
	file := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(file, tokenBytes(branch(response.Tokens, 3, 30)), 0o644))
	lost := ckptfs(t, "why", "--tokens", file, ident)
	lost.want(t, 10, "was retired at", "superseded")
	for _, what := range []string{"lost: 220 of 250 tokens, " + response.name(), "a fork point: ", "retired: it was superseded"} {
		if !strings.Contains(lost.out, what) {
			t.Errorf("the story of a miss does not say %q: %s", what, lost.out)
		}
	}
	must(t, os.WriteFile(file, tokenBytes(branch(tip, 3, 30)), 0o644))
	if found := ckptfs(t, "why", "--tokens", file, ident); found.code != 0 || !strings.Contains(found.out, "found: 240 of 270 tokens") {
		t.Errorf("what is there: %+v", found)
	}
}

// What is passed over and shorter is superseded; what is longer is left alone,
// and so are instructions and what another request's response supersedes.
func TestRetentionSiblings(t *testing.T) {
	_, ident, id := retentionMount(t)
	instruction := turn(id, "instruction", "r0", conversation(1, 100))
	publish(t, ident, instruction)
	prompt, response := first(t, ident, id)
	wantState(t, ident, instruction, "fork")

	retry := turn(id, "prompt", "retry", branch(prompt.Tokens, 5, 10))
	publish(t, ident, retry)
	wantState(t, ident, prompt, "fork")
	wantState(t, ident, response, "current") // longer than the retry

	rewritten := turn(id, "prompt", "r2", branch(prompt.Tokens, 6, 40))
	publish(t, ident, rewritten)
	wantState(t, ident, response, "superseded") // the template rewrites the answer
	wantState(t, ident, retry, "current")       // of a request that is no ancestor's
	wantState(t, ident, prompt, "fork")

	next := turn(id, "response", "r2", branch(rewritten.Tokens, 7, 10))
	publish(t, ident, next)
	wantState(t, ident, rewritten, "current") // a response supersedes nothing
	wantState(t, ident, instruction, "fork")
}

// Lineage outlives the daemon and the keeper, candidates of a staging included.
func TestRetentionRestart(t *testing.T) {
	m, ident, id := retentionMount(t)
	prompt, response := first(t, ident, id)
	next := turn(id, "prompt", "r2", branch(response.Tokens, 2, 30))
	s := beginStaging(t, ident, "next", next)
	m.killDaemon()
	for _, p := range next.pages() {
		if err := s.writePage(p, 0); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	must(t, os.Rename(s.path(), filepath.Join(ident, next.name())))
	check := func() {
		t.Helper()
		wantState(t, ident, prompt, "superseded")
		wantState(t, ident, response, "fork")
		wantXattr(t, filepath.Join(ident, prompt.name()), "superseded_by", next.name())
	}
	check()
	m.killDaemon()
	check()
	m.stop()
	m.start()
	check()
	wantFound(t, ident, prompt.Tokens, prompt)
	wantState(t, ident, prompt, "current")
	m.stop()
	m.start()
	wantState(t, ident, prompt, "current")
}

// Pages that only superseded generations need are not written while serving.
func TestRetentionSupersededUnwritten(t *testing.T) {
	m, ident, id := retentionMount(t, narrowRAM)
	var all []generation
	for c := range 4 {
		tokens := conversation(uint64(c+1), 200)
		for n := range 8 {
			request := fmt.Sprintf("c%d-%d", c, n)
			for _, kind := range []string{"prompt", "response"} {
				tokens = branch(tokens, uint64(100*c+n), 10)
				g := turn(id, kind, request, tokens)
				publish(t, ident, g)
				all = append(all, g)
			}
		}
	}
	m.press(t, ident, id, 4)
	superseded := 0
	for _, g := range all {
		dir := filepath.Join(ident, g.name())
		state, err := xattr(dir, "state")
		if err != nil || state != "superseded" {
			continue // gone, or wanted
		}
		superseded++
		wantXattr(t, filepath.Join(dir, pagePath(0, "target-draft-auxiliary", 0)), "tier", "ram")
	}
	c := m.whole(t).Counters
	if c["avoided_superseded_bytes"]+int64(superseded) == 0 || c["evicted_pages"] == 0 && c["generations_retired"] == 0 {
		t.Errorf("there was no pressure: %v", c)
	}
}
