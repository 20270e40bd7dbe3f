package client

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// fakeHandle is a transaction file. It takes at most 5 bytes in a write, and
// gives at most 3 in a read.
type fakeHandle struct {
	request  []byte
	requests []string // those that were read to the end of the reply
	reply    string
	readErrs []error // taken one by one before the reply is given
	rest     io.Reader
}

func (h *fakeHandle) Write(b []byte) (int, error) {
	h.rest = nil
	n := min(len(b), 5)
	h.request = append(h.request, b[:n]...)
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func (h *fakeHandle) Read(b []byte) (int, error) {
	if h.rest == nil {
		h.requests = append(h.requests, string(h.request))
		h.request = nil
		if len(h.readErrs) > 0 {
			err := h.readErrs[0]
			h.readErrs = h.readErrs[1:]
			return 0, err
		}
		h.rest = strings.NewReader(h.reply)
	}
	return h.rest.Read(b[:min(3, len(b))])
}

func TestConverse(t *testing.T) {
	for _, reply := range []string{"a reply\n", "a reply"} {
		h := &fakeHandle{reply: reply}
		got, err := converse(t.Context(), h, []byte("a longer request"))
		if err != nil || string(got) != "a reply" || len(h.requests) != 1 || h.requests[0] != "a longer request" {
			t.Errorf("reply %q: converse = %q, %v; the requests were %q", reply, got, err, h.requests)
		}
	}
}

func TestConverseWritesAgainAfterESTALE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHandle{reply: "x\n", readErrs: []error{unix.ESTALE, unix.ESTALE}}
		got, err := converse(t.Context(), h, []byte("request"))
		if err != nil || string(got) != "x" || len(h.requests) != 3 {
			t.Errorf("converse = %q, %v; the requests were %q", got, err, h.requests)
		}
	})
}

func TestConverseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stale := make([]error, 2*staleTries)
		for i := range stale {
			stale[i] = unix.ESTALE
		}
		h := &fakeHandle{readErrs: stale}
		if _, err := converse(t.Context(), h, []byte("request")); !isErrno(err, unix.ESTALE) || len(h.requests) != staleTries {
			t.Errorf("the error is %v after %d requests", err, len(h.requests))
		}
		h = &fakeHandle{readErrs: []error{unix.EINVAL}}
		if _, err := converse(t.Context(), h, []byte("request")); !isErrno(err, unix.EINVAL) || len(h.requests) != 1 {
			t.Errorf("the error is %v after %d requests", err, len(h.requests))
		}
		h = &fakeHandle{}
		_, err := converse(t.Context(), h, []byte("request"))
		wantError(t, err, "unexpected EOF")
	})
}

func TestEncodeRequest(t *testing.T) {
	request, err := encodeRequest([]uint32{1, 0x01020304}, FindOptions{MaxTokens: 7, Media: []Media{{At: 1, Digest: "ab"}}})
	if err != nil {
		t.Fatal(err)
	}
	head, tokens, _ := bytes.Cut(request, []byte("\n"))
	if want := `{"num_tokens":2,"max_tokens":7,"media":[{"at":1,"digest":"ab"}]}`; string(head) != want {
		t.Errorf("the first line is %s, want %s", head, want)
	}
	if want := "\x01\x00\x00\x00\x04\x03\x02\x01"; string(tokens) != want {
		t.Errorf("the tokens are %q, want %q", tokens, want)
	}
}

func TestReply(t *testing.T) {
	for text, want := range map[string]bool{
		`{"generation":"00000002-prompt-ab","num_tokens":2,"pages":{"total":3,"ram":1,"disk":2}}`: true,
		`{"generation":null,"reason":"nothing published under this identity"}`:                    false,
	} {
		l := Lease{identityDir: "/m/i"}
		if err := json.Unmarshal([]byte(text), &l.Reply); err != nil || l.Hit() != want {
			t.Errorf("%s: hit %v, %v", text, l.Hit(), err)
		}
	}
}
