package fusefs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// TestAnsweredBefore: the answer that a former daemon gave is made again once, and
// read to its end whatever becomes of what it names.
func TestAnsweredBefore(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	dir := k.publish(1)[0]
	identity := k.fs.idx.GenerationByID(dir.generation()).Identity.ID
	var out fuse.OpenOut
	find := uint64(makeNode(kindFind, identity))
	k.must(k.fs.Open(nil, &fuse.OpenIn{InHeader: fuse.InHeader{NodeId: find}, Flags: syscall.O_RDWR}, &out))
	n := grownPages * testPageTokens
	request := fmt.Appendf(nil, "{\"num_tokens\":%d}\n", n)
	tokens := make([]byte, 4*n)
	tokens[0] = 1
	request = append(request, tokens...)
	_, s := k.fs.Write(nil, &fuse.WriteIn{Fh: out.Fh}, request)
	k.must(s)
	read := func(off int) []byte {
		t.Helper()
		r, s := k.fs.Read(nil, &fuse.ReadIn{Fh: out.Fh, Offset: uint64(off)}, make([]byte, 1<<12))
		k.must(s)
		b, s := r.Bytes(nil)
		k.must(s)
		return b
	}
	answer := read(len(request))
	if !bytes.Contains(answer, []byte(`"generation":"`)) {
		t.Fatalf("not found: %s", answer)
	}
	k.fs = again(t, k.fs)
	if b := read(len(request)); !bytes.Equal(b, answer) {
		t.Errorf("the answer is %s, was %s", b, answer)
	}
	k.remove(dir)
	if b := read(len(request) + len(answer)); len(b) != 0 {
		t.Errorf("after its end the answer goes on with %q", b)
	}
	k.must(k.fs.Flush(nil, &fuse.FlushIn{Fh: out.Fh}))
	k.fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
}

// TestAnswerInPieces: an answer is read to its end in pieces of any size, whether
// from where the request ended or from offset 0.
func TestAnswerInPieces(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	identity := k.fs.idx.GenerationByID(k.publish(1)[0].generation()).Identity
	ask := map[nodeID]string{makeNode(kindFind, identity.ID): `{"tokens":[1,0]}`, makeNode(kindIdentify, identity.Model.ID): string(identity.Document().Doc)}
	for n, request := range ask {
		var out fuse.OpenOut
		k.must(k.fs.Open(nil, &fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(n)}, Flags: syscall.O_RDWR}, &out))
		read := func(off, piece int) (answer string) {
			t.Helper()
			for {
				r, s := k.fs.Read(nil, &fuse.ReadIn{Fh: out.Fh, Offset: uint64(off + len(answer))}, make([]byte, piece))
				k.must(s)
				b, s := r.Bytes(nil)
				k.must(s)
				if answer += string(b); len(b) == 0 || len(answer) > 1<<12 {
					return answer
				}
			}
		}
		for _, piece := range []int{1 << 12, 16, 1} {
			_, s := k.fs.Write(nil, &fuse.WriteIn{Fh: out.Fh}, []byte(request+"\n"))
			k.must(s)
			answer := read(len(request)+1, piece)
			if strings.Count(answer, "\n") != 1 {
				t.Fatalf("in pieces of %d: %q", piece, answer)
			}
			for _, off := range []int{0, len(request) + 1, 0} {
				if again := read(off, piece); again != answer {
					t.Errorf("from %d, in pieces of %d: %q, want %q", off, piece, again, answer)
				}
			}
		}
		k.fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
	}
}

// TestRemovedCandidate: a candidate that is removed as a lookup looks at it is
// skipped, and nobody is woken for it.
func TestRemovedCandidate(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	dir := k.publish(1)[0]
	g := k.fs.idx.GenerationByID(dir.generation())
	k.remove(dir)
	var log bytes.Buffer
	k.fs.log = slog.New(slog.NewTextHandler(&log, nil))
	if _, ok := k.fs.readable(g, new(findReply)); ok || log.Len() > 0 {
		t.Errorf("readable: %v; logged: %s", ok, &log)
	}
}

// TestNextRequestAfterDeath: a handle that has asked a former daemon asks the next
// one, however its request is spaced. The rest of half a request is lost.
func TestNextRequestAfterDeath(t *testing.T) {
	k := &rawClient{t: t, fs: quietFS(t)}
	identity := k.fs.idx.GenerationByID(k.publish(1)[0].generation()).Identity
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, identity.Document().Doc, " ", "  "); err != nil {
		t.Fatal(err)
	}
	for n, request := range map[nodeID]string{
		makeNode(kindFind, identity.ID):           "{ \"num_tokens\": 1}\n\x01\x00\x00\x00",
		makeNode(kindIdentify, identity.Model.ID): " " + spaced.String(),
	} {
		var out fuse.OpenOut
		k.must(k.fs.Open(nil, &fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(n)}, Flags: syscall.O_RDWR}, &out))
		write := func(off int, data string) fuse.Status {
			_, s := k.fs.Write(nil, &fuse.WriteIn{Fh: out.Fh, Offset: uint64(off)}, []byte(data))
			return s
		}
		k.must(write(0, request))
		k.fs = again(t, k.fs)
		k.must(write(200, request))
		half := len(request) - 3
		k.must(write(400, request[:half]))
		k.fs = again(t, k.fs)
		if s := write(400+half, request[half:]); s != fuse.Status(syscall.ESTALE) {
			t.Errorf("the rest of a request: %v", s)
		}
		k.must(write(600, request))
		k.fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
	}
}
