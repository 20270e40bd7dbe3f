package fusefs

import (
	"bytes"
	"fmt"
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
