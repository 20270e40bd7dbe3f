package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Section 5: the lookup.

// findRequest is the head of a request, and the tokens.
type findRequest struct {
	Tokens []uint32
	Max    int
	Media  []mediaItem
}

func (r findRequest) bytes() []byte {
	head := object{"num_tokens": len(r.Tokens)}
	if r.Max > 0 {
		head["max_tokens"] = r.Max
	}
	if len(r.Media) > 0 {
		list := []any{}
		for _, md := range r.Media {
			list = append(list, object{"at": md.At, "digest": md.Digest})
		}
		head["media"] = list
	}
	return append(append(canonical(head), '\n'), tokenBytes(r.Tokens)...)
}

// findReply is the one line that comes back.
type findReply struct {
	Generation     string     `json:"generation"`
	NumTokens      int        `json:"num_tokens"`
	Kind           string     `json:"kind"`
	DraftPrefixLen int        `json:"draft_prefix_len"`
	WorldSize      int        `json:"world_size"`
	Pages          pageCounts `json:"pages"`
	Reason         string     `json:"reason"`
}

type pageCounts struct {
	Total int `json:"total"`
	RAM   int `json:"ram"`
	Disk  int `json:"disk"`
}

func openFind(ident string) (*os.File, error) {
	return os.OpenFile(filepath.Join(ident, ".find"), os.O_RDWR, 0)
}

// converse writes one request on an open handle and reads its reply. A daemon
// that was replaced in between answers ESTALE: then the request is written again.
func converse(f *os.File, req []byte) (findReply, error) {
	for range 100 {
		r, err := converseOnce(f, req)
		if !errors.Is(err, syscall.ESTALE) {
			return r, err
		}
	}
	return findReply{}, errors.New("ESTALE a hundred times")
}

func converseOnce(f *os.File, req []byte) (r findReply, err error) {
	if _, err := f.Write(req); err != nil {
		return r, err
	}
	line, err := readReply(f)
	if err != nil {
		return r, err
	}
	d := json.NewDecoder(bytes.NewReader([]byte(line)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("reply %q: %w", line, err)
	}
	if line[len(line)-1] != '\n' || bytes.Count([]byte(line), []byte("\n")) != 1 {
		return r, fmt.Errorf("reply is not one line: %q", line)
	}
	return r, nil
}

func ask(t testing.TB, ident string, tokens []uint32) findReply {
	t.Helper()
	return askFor(t, ident, findRequest{Tokens: tokens})
}

func askFor(t testing.TB, ident string, req findRequest) findReply {
	t.Helper()
	f, err := openFind(ident)
	must(t, err)
	defer f.Close()
	r, err := converse(f, req.bytes())
	must(t, err)
	if r.Generation == "" {
		wantSentence(t, "the reason of a miss", r.Reason)
	}
	return r
}

func TestFindLongest(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("longest", 2)
		ident := m.addIdentity(t, "model", id)
		byLen := map[int]generation{}
		for _, n := range []int{1, 255, 256, 257, 512, 700, 1000} {
			g := smallGeneration(id, conversation(1, n))
			g.Kind, g.Draft = "prompt", 7
			byLen[n] = g
			publish(t, ident, g)
		}
		fork := append(conversation(1, 600), conversation(2, 600)...)
		forked := smallGeneration(id, fork)
		publish(t, ident, forked)

		for asked, want := range map[int]int{1: 1, 2: 1, 254: 1, 255: 255, 256: 256, 257: 257, 300: 257,
			511: 257, 512: 512, 513: 512, 699: 512, 700: 700, 999: 700, 1000: 1000, 1001: 1000, 9000: 1000} {
			got := ask(t, ident, conversation(1, asked))
			g := byLen[want]
			total := len(g.pages())
			exp := findReply{Generation: g.name(), NumTokens: want, Kind: "prompt", DraftPrefixLen: 7, WorldSize: 2,
				Pages: pageCounts{Total: total, RAM: total}}
			if got != exp {
				t.Errorf("of %d tokens: got %+v, want %+v", asked, got, exp)
			}
		}
		if got := ask(t, ident, append(fork, 1, 2, 3)); got.Generation != forked.name() {
			t.Errorf("on the fork: %+v", got)
		}
		if got := ask(t, ident, fork[:1199]); got.Generation != byLen[512].name() {
			t.Errorf("within the fork: %+v", got)
		}
		for limit, want := range map[int]int{1000: 1000, 999: 700, 700: 700, 511: 257, 256: 256, 254: 1} {
			got := askFor(t, ident, findRequest{Tokens: conversation(1, 1500), Max: limit})
			if got.NumTokens != want {
				t.Errorf("at most %d tokens: got %d, want %d", limit, got.NumTokens, want)
			}
		}
		if got := askFor(t, ident, findRequest{Tokens: fork, Max: 600}); got.NumTokens != 512 {
			t.Errorf("fork, at most 600: %+v", got)
		}
	})
}

// TestFindEquals: among equals, the one that was published last.
func TestFindEquals(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("equals", 1)
		ident := m.addIdentity(t, "model", id)
		var last string
		for _, kind := range []string{"prompt", "response", "instruction"} {
			g := smallGeneration(id, conversation(1, 600))
			g.Kind = kind
			last = publish(t, ident, g)
			if got := ask(t, ident, conversation(1, 700)); got.Generation != g.name() {
				t.Errorf("found %s, want the last one, %s", got.Generation, g.name())
			}
		}
		must(t, os.RemoveAll(last))
		if got := ask(t, ident, conversation(1, 700)); got.Kind != "response" {
			t.Errorf("after the last was removed: %+v", got)
		}
	})
}

func TestFindMisses(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("misses", 1)
		ident := m.addIdentity(t, "model", id)
		nothing := ask(t, ident, conversation(1, 300))
		g := smallGeneration(id, conversation(1, 300))
		dir := publish(t, ident, g)
		foreign := ask(t, ident, conversation(2, 300))
		if got := ask(t, ident, conversation(1, 299)); got.Generation != "" {
			t.Errorf("a longer generation was found: %+v", got)
		}
		must(t, os.RemoveAll(dir))
		retired := ask(t, ident, conversation(1, 300))
		for _, r := range []findReply{nothing, foreign, retired} {
			if r.Generation != "" || r.NumTokens != 0 {
				t.Errorf("not a miss: %+v", r)
			}
		}
		if nothing.Reason == foreign.Reason || foreign.Reason == retired.Reason || nothing.Reason == retired.Reason {
			t.Errorf("reasons do not tell apart: %q, %q, %q", nothing.Reason, foreign.Reason, retired.Reason)
		}
		if !bytes.Contains([]byte(retired.Reason), []byte("retired")) {
			t.Errorf("a lookup of what was retired says %q", retired.Reason)
		}
	})
}

func TestFindMedia(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("find media", 1)
		ident := m.addIdentity(t, "model", id)
		tokens := conversation(1, 1500)
		a, b := mediaItem{At: 100, Digest: hexOf(64)}, mediaItem{At: 800, Digest: hexOf(40)}
		other := mediaItem{At: 800, Digest: hexOf(64)}
		short, long := smallGeneration(id, tokens[:700]), smallGeneration(id, tokens[:1000])
		short.Media, long.Media = []mediaItem{a}, []mediaItem{a, b}
		publish(t, ident, short)
		publish(t, ident, long)
		late := mediaItem{At: 1400, Digest: hexOf(40)}
		for i, c := range []struct {
			media []mediaItem
			want  string
		}{
			{[]mediaItem{a, b}, long.name()},
			{[]mediaItem{a, b, late}, long.name()},
			{[]mediaItem{a, other}, short.name()},
			{[]mediaItem{a}, short.name()},
			{[]mediaItem{b}, ""},
			{nil, ""},
		} {
			if got := askFor(t, ident, findRequest{Tokens: tokens, Media: c.media}); got.Generation != c.want {
				t.Errorf("case %d: found %q, want %q", i, got.Generation, c.want)
			}
		}
	})
}
