package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Section 5: .find as a file: handles, conversations, errors, leases.

// foundSetup publishes two generations of one conversation, of 300 and 900 tokens.
func foundSetup(t *testing.T, md mode, flags ...string) (ident string, short, long generation) {
	t.Helper()
	m := mountFS(t, md, flags...)
	id := newIdentity(t.Name(), 1)
	ident = m.addIdentity(t, "model", id)
	short, long = smallGeneration(id, conversation(1, 300)), smallGeneration(id, conversation(1, 900))
	publish(t, ident, short)
	publish(t, ident, long)
	return ident, short, long
}

func TestFindByPeople(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		ident, short, long := foundSetup(t, md)
		list := fmt.Sprint(conversation(1, 950))
		list = strings.ReplaceAll(list, " ", ", ")
		script := `exec 3<>"$1/.find"; printf '{"tokens": %s}\n' "$2" >&3; cat <&3`
		out, err := exec.Command("sh", "-c", script, "sh", ident, list).Output()
		must(t, err)
		if !bytes.Contains(out, []byte(long.name())) || bytes.Count(out, []byte("\n")) != 1 {
			t.Errorf("the shell reads %q", out)
		}
		f, err := openFind(ident)
		must(t, err)
		defer f.Close()
		got, err := converse(f, []byte(fmt.Sprintf(`{"max_tokens":500,"tokens":%s}`+"\n", list)))
		must(t, err)
		if got.Generation != short.name() {
			t.Errorf("at most 500 tokens: %+v", got)
		}
	})
}

// TestFindConversations: one handle, many requests, in pieces of any size.
func TestFindConversations(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		ident, short, long := foundSetup(t, md)
		f, err := openFind(ident)
		must(t, err)
		defer f.Close()
		for _, piece := range []int{1 << 20, 4096, 1000, 7, 1} {
			for n, want := range map[int]string{100: "", 500: short.name(), 1000: long.name()} {
				req := findRequest{Tokens: conversation(1, n)}.bytes()
				for len(req) > 0 {
					k, err := f.Write(req[:min(piece, len(req))])
					must(t, err)
					req = req[k:]
				}
				line, err := readReply(f)
				must(t, err)
				if want == "" && !strings.Contains(line, `"generation":null`) || !strings.Contains(line, want) {
					t.Errorf("pieces of %d, %d tokens: %s", piece, n, line)
				}
			}
		}
		// A large request takes several writes whatever the client does.
		got, err := converse(f, findRequest{Tokens: append(conversation(1, 900), conversation(3, 400000)...)}.bytes())
		must(t, err)
		if got.Generation != long.name() {
			t.Errorf("of 400,900 tokens: %+v", got)
		}
		// A reply that is read bit by bit, and to its end.
		_, err = f.Write(findRequest{Tokens: conversation(1, 900)}.bytes())
		must(t, err)
		var line []byte
		for buf := make([]byte, 3); ; {
			n, err := f.Read(buf)
			line = append(line, buf[:n]...)
			if n == 0 || err != nil {
				break
			}
		}
		if !bytes.HasPrefix(line, []byte("{")) || !bytes.HasSuffix(line, []byte("}\n")) {
			t.Errorf("read in pieces of 3: %q", line)
		}
		// Two handles are two conversations.
		g, err := openFind(ident)
		must(t, err)
		defer g.Close()
		_, err = f.Write(findRequest{Tokens: conversation(1, 500)}.bytes())
		must(t, err)
		_, err = g.Write(findRequest{Tokens: conversation(1, 900)}.bytes())
		must(t, err)
		a, err := readReply(f)
		must(t, err)
		b, err := readReply(g)
		must(t, err)
		if !strings.Contains(a, short.name()) || !strings.Contains(b, long.name()) {
			t.Errorf("two handles: %s%s", a, b)
		}
		// A request that is not read to its end does not leak into the next.
		_, err = f.Write(findRequest{Tokens: conversation(1, 500)}.bytes())
		must(t, err)
		got, err = converse(f, findRequest{Tokens: conversation(1, 900)}.bytes())
		must(t, err)
		if got.Generation != long.name() {
			t.Errorf("after an unread reply: %+v", got)
		}
	})
}

func TestFindGarbage(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		ident, short, _ := foundSetup(t, md)
		f, err := openFind(ident)
		must(t, err)
		defer f.Close()
		right := findRequest{Tokens: conversation(1, 500)}.bytes()
		for what, req := range map[string]string{
			"no JSON":             "hello\n",
			"an empty line":       "\n",
			"an empty object":     "{}\n",
			"a list":              "[1,2,3]\n",
			"a float":             `{"num_tokens":1.5}` + "\n",
			"0 tokens":            `{"num_tokens":0}` + "\n",
			"negative":            `{"num_tokens":-4}` + "\n",
			"too many tokens":     `{"num_tokens":4194305}` + "\n",
			"negative limit":      `{"num_tokens":1,"max_tokens":-1}` + "\n\x01\x00\x00\x00",
			"no tokens":           `{"tokens":[]}` + "\n",
			"token out of range":  `{"tokens":[1,2147483648]}` + "\n",
			"binary out of range": `{"num_tokens":1}` + "\n\xff\xff\xff\xff",
			"token in words":      `{"tokens":["a"]}` + "\n",
			"bad media":           `{"tokens":[1],"media":[{"at":0,"digest":"cat"}]}` + "\n",
			"media that fall":     `{"tokens":[1,2,3],"media":[{"at":2,"digest":"` + hexOf(40) + `"},{"at":1,"digest":"` + hexOf(40) + `"}]}` + "\n",
			"bytes":               "\x00\xff\xfe\n",
		} {
			_, err := converse(f, []byte(req))
			wantErrno(t, what, err, syscall.EINVAL)
			got, err := converse(f, right)
			if err != nil || got.Generation != short.name() {
				t.Errorf("the handle after %s: %+v, %v", what, got, err)
			}
		}
	})
}

// TestFindHalf: a read ends a request that was only half written; the next write begins a new one.
func TestFindHalf(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		ident, short, _ := foundSetup(t, md)
		f, err := openFind(ident)
		must(t, err)
		defer f.Close()
		right := findRequest{Tokens: conversation(1, 500)}.bytes()
		for _, n := range []int{1, 10, 100, len(right) - 1} {
			_, err := converse(f, right[:n])
			wantErrno(t, fmt.Sprintf("%d bytes of a request", n), err, syscall.EINVAL)
			got, err := converse(f, right)
			if err != nil || got.Generation != short.name() {
				t.Errorf("the handle after %d bytes: %+v, %v", n, got, err)
			}
		}
	})
}

// TestFindEndless: a request that never ends is refused rather than kept.
func TestFindEndless(t *testing.T) {
	requireFUSE(t)
	ident, short, _ := foundSetup(t, modes[0])
	f, err := openFind(ident)
	must(t, err)
	defer f.Close()
	piece := bytes.Repeat([]byte("{"), 1<<20)
	for i := 0; err == nil; i++ {
		if _, err = f.Write(piece); i == 1000 {
			t.Fatal("1,000 MiB of a request's first line are taken")
		}
	}
	wantOneOf(t, "a head without an end", err, syscall.EINVAL, syscall.EFBIG)
	got, err := converse(f, findRequest{Tokens: conversation(1, 500)}.bytes())
	if err != nil || got.Generation != short.name() {
		t.Errorf("the handle after it: %+v, %v", got, err)
	}
}

// TestFindLease: what a .find handle returned last is not evicted while the
// handle is open; what is not held leaves RAM when that is needed.
func TestFindLease(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--l1-size", "24MiB")
		m.expectWarn("retired") // there is no disk tier to take what RAM drops
		id := newIdentity("lease", 1)
		ident := m.addIdentity(t, "model", id)
		// Each takes 3 MiB; the first and second are the coldest.
		make3 := func(i int) generation { return shapedGeneration(id, conversation(uint64(i), 100), 100, 1<<20) }
		first, second, third := make3(1), make3(2), make3(3)
		for _, g := range []generation{first, second, third} {
			publish(t, ident, g)
		}
		f, err := openFind(ident)
		must(t, err)
		defer f.Close()
		got, err := converse(f, findRequest{Tokens: first.Tokens}.bytes())
		must(t, err)
		if got.Generation != first.name() {
			t.Fatalf("found %+v", got)
		}
		held, err := os.Open(filepath.Join(ident, second.name(), "rank-0"))
		must(t, err)
		defer held.Close()
		for i := 10; i < 22; i++ {
			publish(t, ident, make3(i))
		}
		for _, g := range []generation{first, second} {
			if err := checkGeneration(filepath.Join(ident, g.name()), g); err != nil {
				t.Errorf("a leased generation: %v", err)
			}
		}
		wholeOrGone(t, ident, third)
		// The next use of the handle gives up the lease.
		if _, err := converse(f, findRequest{Tokens: conversation(99, 5)}.bytes()); err != nil {
			t.Fatal(err)
		}
		for i := 30; i < 42; i++ {
			publish(t, ident, make3(i))
		}
		wholeOrGone(t, ident, first)
		must(t, checkGeneration(filepath.Join(ident, second.name()), second))
	})
}

// wholeOrGone: what RAM has no room for is on disk, whole, or it is retired.
func wholeOrGone(t *testing.T, ident string, g generation) {
	t.Helper()
	dir := filepath.Join(ident, g.name())
	if gone(dir) != nil {
		must(t, checkGeneration(dir, g))
	}
}
