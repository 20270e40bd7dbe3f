package index

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseFindRequest(t *testing.T) {
	tokens := string(testTokens(3, 1))
	for _, c := range []struct {
		in, want string // want: what is parsed; "..." if more must come
	}{
		{"", "..."},
		{`{"num_tokens":3`, "..."},
		{`{"num_tokens":3}`, "..."},
		{`{"num_tokens":3}` + "\n", "..."},
		{`{"num_tokens":3}` + "\n" + tokens[:11], "..."},
		{`{"num_tokens":3}` + "\n" + tokens, "3 0 []"},
		{` { "num_tokens" : 3, "max_tokens" : 2 } ` + "\r\n" + tokens, "3 2 []"},
		{`{"num_tokens":3,"media":[{"at":1,"digest":"` + hex40 + `"}]}` + "\n" + tokens, "3 0 [{1 " + hex40 + "}]"},
		{`{"tokens":[1,2654435762,3]`, "..."},
		{`{"tokens":[1,2,3]}`, "3 0 []"},
		{`{"tokens":[1,2,3],"explain":true}`, "3 0 [] explained"},
		{`{"tokens":[1,2,3],"explain":false}`, "3 0 []"},
		{`{"tokens":[1,2,3]}` + "\n", "3 0 []"},
		{`{"tokens":[1,2,3],"max_tokens":4194304}`, "3 4194304 []"},
		{`{"tokens":[1,2,3],"media":[{"at":1,"digest":"` + hex40 + `"}`, "..."}, // ends with a brace
		{`{"tokens":[1,2,3],"media":[{"at":1,"digest":"` + hex40 + `"}]}`, "3 0 [{1 " + hex40 + "}]"},
	} {
		req, complete, err := ParseFindRequest([]byte(c.in))
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		got := "..."
		if complete {
			got = fmt.Sprint(req.NumTokens, req.MaxTokens, req.Media)
			if req.Explain {
				got += " explained"
			}
			if len(req.Tokens) != req.NumTokens*tokenBytes {
				t.Errorf("%q: %d bytes of tokens", c.in, len(req.Tokens))
			}
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestParseFindRequestRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"\n", "ends too early"},
		{"x\n", "not the JSON that is wanted: byte 0: expected a JSON value"},
		{"[1,2]\n", "must begin with a JSON object"},
		{"{\"num_tokens\":3}\n0123456789abc", "13 bytes follow the line, but num_tokens is 3, which makes 12"},
		{"{\"num_tokens\":1}\nabc\xff", "token 0 is not below 2^31"},
		{"{\"num_tokens\":0}\n", "num_tokens must be an integer from 1 to 4194304"},
		{"{\"num_tokens\":4194305}\n", "num_tokens must be an integer from 1 to 4194304"},
		{"{\"num_tokens\":1.0}\n", "fraction"},
		{"{\"num_tokens\":1,\"explain\":1}\n", "explain must be true or false, not 1"},
		{"{\"num_tokens\":1,\"max_tokens\":0}\n", "max_tokens must be an integer from 1"},
		{"{\"num_tokens\":1,\"max_tokens\":\"1\"}\n", "max_tokens must be an integer from 1"},
		{"{\"num_tokens\":1,\"tokens\":[1]}\n", "either num_tokens"},
		{"{}\n", "num_tokens is missing"},
		{"{\"num_tokens\":1,\"prompt\":1}\n", `a lookup has no field "prompt"`},
		{"{\"num_tokens\":1,\"media\":[{\"at\":1,\"digest\":\"" + hex40 + "\"}]}\n", "media[0].at must be"},
		{"{\"num_tokens\":1,\n\"max_tokens\":1}\n", "byte 16: expected a key"},
		{"{\"tokens\":[]}\n", "at least one token"},
		{"{\"tokens\":[1,2147483648]}\n", "tokens[1] must be an integer from 0 to 2147483647"},
		{"{\"tokens\":[1,-7]}\n", "tokens[1] must be"},
		{"{\"tokens\":[1,7.5]}\n", "tokens[1] (byte 13): a number with a fraction"},
		{"{\"tokens\":7}\n", "tokens must be an array"},
		{"{\"tokens\":[1]}\n\n", "1 bytes follow"},
		{`{"tokens":[1],"x":1}`, `no field "x"`},
		{"{\"num_tokens\":1" + strings.Repeat(" ", maxFindHeaderBytes) + "}\n", "more than 4194304"},
		{strings.Repeat(" ", MaxFindBytes+1), "more than 67108864"},
		{"{\"tokens\":[0" + strings.Repeat(",0", MaxTokens) + "]}", "more than 4194304 tokens"},
	} {
		_, complete, err := ParseFindRequest([]byte(c.in))
		wantInvalid(t, c.in, err, c.want)
		if complete {
			t.Errorf("%.80q: an error and complete", c.in)
		}
	}
}

// The largest request of each form, written in parts of 128 KiB as the
// kernel does, is parsed in linear time.
func TestParseFindRequestInParts(t *testing.T) {
	if testing.Short() {
		t.Skip("large inputs")
	}
	people := []byte(`{"tokens":[0` + strings.Repeat(",2147483647", MaxTokens-1) + "]}\n")
	binary := append(fmt.Appendf(nil, "{\"num_tokens\":%d}\n", MaxTokens), make([]byte, MaxTokens*tokenBytes)...)
	for _, whole := range [][]byte{people, binary} {
		start := time.Now()
		for end := 128 << 10; ; end += 128 << 10 {
			part := whole[:min(end, len(whole))]
			req, complete, err := ParseFindRequest(part)
			if err != nil {
				t.Fatal(err)
			}
			if complete != (len(part) == len(whole)) {
				t.Fatalf("complete is %v after %d of %d bytes", complete, len(part), len(whole))
			}
			if complete {
				if req.NumTokens != MaxTokens {
					t.Errorf("%d tokens", req.NumTokens)
				}
				break
			}
		}
		t.Logf("%d bytes: %v", len(whole), time.Since(start))
	}
}

func FuzzFindRequest(f *testing.F) {
	f.Add([]byte("{\"num_tokens\":3,\"max_tokens\":2}\n" + string(testTokens(3, 1))))
	f.Add([]byte(`{"tokens":[1,2,3],"media":[{"at":1,"digest":"` + hex40 + `"}]}` + "\n"))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		req, complete, err := ParseFindRequest(b)
		if err != nil || !complete {
			if complete || req != nil {
				t.Fatalf("%q: %v, %v, %v", b, req, complete, err)
			}
			return
		}
		if len(req.Tokens) != req.NumTokens*tokenBytes || req.MaxTokens < 0 {
			t.Fatalf("%q gives %+v", b, req)
		}
		if _, err := NewChain(Digest{}, req.Tokens, req.Media); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if _, complete, err := ParseFindRequest(append(bytes.Clone(b), 0)); complete || err == nil {
			if b[len(b)-1] == '}' { // without its newline, which may be what comes
				return
			}
			t.Fatalf("%q: a byte more is accepted", b)
		}
	})
}
