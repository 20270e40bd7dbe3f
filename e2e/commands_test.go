package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// cli is the outcome of a ckptfs command.
type cli struct {
	code        int
	out, errOut string
}

// ckptfs runs the binary under test with a command that ends by itself.
func ckptfs(t testing.TB, args ...string) cli {
	t.Helper()
	cmd := exec.Command(suite.binary, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cli{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// want fails the test unless the command ended with code and said all of the words on standard error.
func (c cli) want(t testing.TB, code int, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(c.errOut, word) {
			t.Errorf("standard error does not say %q", word)
			code = -1
		}
	}
	if c.code != code {
		t.Fatalf("exit code %d, want %d; stdout %q, stderr %q", c.code, code, c.out, c.errOut)
	}
}

// layOut writes a generation as `ckptfs put` takes it, with the identity document beside it.
func layOut(t testing.TB, g generation) (dir, identityFile string) {
	t.Helper()
	base := t.TempDir()
	dir, identityFile = filepath.Join(base, "generation"), filepath.Join(base, "identity.json")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(identityFile, canonical(g.ID.Doc), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "manifest.json"), canonical(g.manifest()), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "tokens"), tokenFile(t, g.Tokens), 0o644))
	for _, p := range g.pages() {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, p.path)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, p.path), pageBytes(p, 0), 0o644))
	}
	return dir, identityFile
}

func tokenFile(t testing.TB, tokens []uint32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, tokens)
	must(t, err)
	return b
}

func TestPutGetFind(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		g := smallGeneration(newIdentity("put", 2), conversation(1, 1000))
		dir, identityFile := layOut(t, g)
		ident := filepath.Join(m.path, "org--model", g.ID.dir())

		put := ckptfs(t, "put", "--identity", identityFile, filepath.Join(m.path, "org--model"), dir)
		put.want(t, 0, "12 pages written", " 0 shared")
		if put.out != g.name()+"\n" {
			t.Errorf("put printed %q, want the name %s", put.out, g.name())
		}
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		ckptfs(t, "put", ident, dir).want(t, 0, "was published already", " 0 pages written", "12 shared")

		longer := filepath.Join(t.TempDir(), "tokens")
		must(t, os.WriteFile(longer, tokenFile(t, conversation(1, 1100)), 0o644))
		find := ckptfs(t, "find", "--json", "--tokens", longer, ident)
		find.want(t, 0)
		var reply struct {
			Generation string `json:"generation"`
		}
		must(t, json.Unmarshal([]byte(find.out), &reply))
		if reply.Generation != g.name() {
			t.Errorf("find answered %s", find.out)
		}
		ckptfs(t, "find", "--max-tokens", "999", "--tokens", longer, ident).want(t, 10, "max_tokens")

		copied := filepath.Join(t.TempDir(), "copy")
		ckptfs(t, "get", "--tokens", longer, ident, copied).want(t, 0, "12 pages")
		must(t, checkGeneration(copied, g))

		// What get wrote can be put again, without the tokens.
		must(t, exec.Command("rm", "-r", filepath.Join(ident, g.name())).Run())
		ckptfs(t, "get", "--tokens", longer, ident, copied).want(t, 10, "deleted")
		ckptfs(t, "put", "-q", ident, copied).want(t, 0)
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		if left := names(t, filepath.Join(ident, ".staging")); len(left) > 0 {
			t.Errorf("put leaves stagings behind: %q", left)
		}
	})
}

// TestPutByRanks lets one process per rank store a generation, which all begin at once.
func TestPutByRanks(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		const world = 4
		id := newIdentity("ranks", world)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(2, 1500))
		dir, _ := layOut(t, g)
		puts := make([]cli, world)
		var wg sync.WaitGroup
		for rank := range puts {
			wg.Go(func() { puts[rank] = ckptfs(t, "put", "--rank", strconv.Itoa(rank), "--wait", "60s", ident, dir) })
		}
		wg.Wait()
		published := 0
		for _, put := range puts {
			put.want(t, 0, "8 pages written")
			if strings.HasPrefix(put.errOut, "published: ") {
				published++
			}
		}
		if published != 1 {
			t.Errorf("%d ranks say that they published: %v", published, puts)
		}
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
		// A replay: whichever rank is told so first removes the staging under the others.
		for range 5 {
			for rank := range puts {
				wg.Go(func() { puts[rank] = ckptfs(t, "put", "--rank", strconv.Itoa(rank), "--wait", "60s", ident, dir) })
			}
			wg.Wait()
			for _, put := range puts {
				put.want(t, 0, "was published already")
			}
		}
	})
}

func TestPutRefused(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		g := smallGeneration(newIdentity("refused", 1), conversation(3, 300))
		ident := m.addIdentity(t, "model", g.ID)
		dir, _ := layOut(t, g)
		ckptfs(t, "put", "--rank", "1", ident, dir).want(t, 2, "--rank 1")
		g.Kind = "promise"
		dir, _ = layOut(t, g)
		ckptfs(t, "put", ident, dir).want(t, 11, "manifest", "promise")
		if left := names(t, filepath.Join(ident, ".staging")); len(left) > 0 {
			t.Errorf("a refused put leaves stagings behind: %q", left)
		}
	})
}

func TestStatusCommand(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		table := ckptfs(t, "status", m.path)
		table.want(t, 0)
		if !strings.HasPrefix(table.out, "mount ") || !strings.Contains(table.out, m.path) {
			t.Errorf("status printed\n%s", table.out)
		}
		asJSON := ckptfs(t, "status", "--json", m.path)
		asJSON.want(t, 0)
		var s status
		must(t, json.Unmarshal([]byte(asJSON.out), &s))
		if s.KeeperPID != m.cmd.Process.Pid {
			t.Errorf("keeper_pid is %d, want %d", s.KeeperPID, m.cmd.Process.Pid)
		}
		ckptfs(t, "status", t.TempDir()).want(t, 9, "no ckptfs")
	})
}

// TestCommandsOnADeadMount: a mount that nobody serves has one exit code in all commands.
func TestCommandsOnADeadMount(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	g := smallGeneration(newIdentity("dead", 1), conversation(1, 900))
	dir, identityFile := layOut(t, g)
	ident := m.addIdentity(t, "model", g.ID)
	generation := publish(t, ident, g)
	backup := filepath.Join(m.dir, "backup")
	runQuietly(t, "cp", "-a", m.path, backup)
	m.killKeeper()
	eventually(t, "the mount is dead", func() error {
		if _, err := os.ReadDir(ident); !errors.Is(err, syscall.ENOTCONN) {
			return fmt.Errorf("reading a directory: %v", err)
		}
		return nil
	})
	tokens := filepath.Join(dir, "tokens")
	for _, args := range [][]string{
		{"put", ident, dir},
		{"put", "--identity", identityFile, filepath.Dir(ident), dir},
		{"get", generation, t.TempDir()},
		{"get", "--tokens", tokens, ident, t.TempDir()},
		{"find", "--tokens", tokens, ident},
		{"why", generation},
		{"ls", m.path},
		{"restore", backup, m.path},
		{"status", m.path},
		{"clear", m.path},
	} {
		if r := ckptfs(t, args...); r.code != 9 {
			t.Errorf("%s: exit code %d, stderr %q", args[0], r.code, r.errOut)
		}
	}
}

// TestRefusedLookups: why a lookup is refused is said in words.
func TestRefusedLookups(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	ident := m.addIdentity(t, "model", newIdentity("refused", 1))
	for tokens, reason := range map[string]string{
		"[]":                                     "1 to 4194304",
		"[1,2,4294967295]":                       "token 2 is not below 2^31",
		"[" + strings.Repeat("7,", 4<<20) + "7]": "4194304",
	} {
		path := filepath.Join(t.TempDir(), "tokens.json")
		must(t, os.WriteFile(path, []byte(tokens), 0o644))
		ckptfs(t, "find", "--tokens", path, ident).want(t, 11, reason)
		ckptfs(t, "why", "--tokens", path, ident).want(t, 11, reason)
		ckptfs(t, "get", "--tokens", path, ident, t.TempDir()).want(t, 11, reason)
	}
	path := filepath.Join(t.TempDir(), "tokens.json")
	must(t, os.WriteFile(path, []byte("[1]"), 0o644))
	ckptfs(t, "find", "--max-tokens=-5", "--tokens", path, ident).want(t, 11, "max_tokens")
}

// TestWhyIsPrintable: the name of a request is its client's, and does nothing to an operator's terminal.
func TestWhyIsPrintable(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	g := smallGeneration(newIdentity("printable", 1), conversation(1, 300))
	g.Request = "a\x1b[31m\nretired: b"
	dir := publish(t, m.addIdentity(t, "model", g.ID), g)
	r := ckptfs(t, "why", dir)
	if r.code != 0 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "a?[31m?retired: b") {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.out, r.errOut)
	}
}

// TestCommandsFromWithin: . is a model, an identity or a generation where that is the working directory.
func TestCommandsFromWithin(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	g := smallGeneration(newIdentity("within", 1), conversation(1, 900))
	dir, identityFile := layOut(t, g)
	model := m.addModel(t, "model")
	t.Chdir(model)
	ckptfs(t, "put", "--identity", identityFile, ".", dir).want(t, 0, "published")
	t.Chdir(g.ID.dir())
	ckptfs(t, "put", ".", dir).want(t, 0, "was published already")
	t.Chdir(g.name())
	for _, command := range []string{"why", "ls"} {
		if r := ckptfs(t, command, "."); r.code != 0 || r.out == "" {
			t.Errorf("%s .: exit code %d, stdout %q, stderr %q", command, r.code, r.out, r.errOut)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	ckptfs(t, "get", ".", copied).want(t, 0)
	must(t, checkGeneration(copied, g))
	t.Chdir("/")
}

// TestCommandsEndBySignals: a command that has nothing to clear up ends at once, also while it waits for its input, and
// one that hangs in a file call by the second signal.
func TestCommandsEndBySignals(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	g := smallGeneration(newIdentity("signals", 1), conversation(1, 900))
	ident := m.addIdentity(t, "model", g.ID)
	dir, _ := layOut(t, g)
	fifo := func(path string) string {
		must(t, os.RemoveAll(path))
		must(t, syscall.Mkfifo(path, 0o600))
		return path
	}
	tokens := fifo(filepath.Join(dir, "tokens"))
	for _, args := range [][]string{
		{"put", ident, dir},
		{"get", "--tokens", tokens, ident, t.TempDir()},
		{"find", "--tokens", tokens, ident},
	} {
		cmd := exec.Command(suite.binary, args...)
		must(t, cmd.Start())
		w, err := os.OpenFile(tokens, os.O_WRONLY, 0) // when the command reads it
		must(t, err)
		endsBy(t, cmd, false)
		w.Close()
	}
	must(t, os.Remove(tokens))
	must(t, os.WriteFile(tokens, tokenFile(t, g.Tokens), 0o644))
	fifo(filepath.Join(dir, g.pages()[1].path))
	cmd := exec.Command(suite.binary, "put", "--jobs", "1", "--staging", "try", ident, dir)
	must(t, cmd.Start())
	eventually(t, "the first page is written", func() error {
		_, err := os.Stat(filepath.Join(ident, ".staging/try", g.pages()[0].path))
		return err
	})
	endsBy(t, cmd, true)
}

// endsBy wants a command to end by one SIGINT, or by several.
func endsBy(t testing.TB, cmd *exec.Cmd, several bool) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	if !several {
		again.Stop()
	}
	_ = cmd.Process.Signal(os.Interrupt)
	for limit := time.After(5 * time.Second); ; {
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%q: exit code 0", cmd.Args[1:])
			}
			return
		case <-again.C:
			_ = cmd.Process.Signal(os.Interrupt)
		case <-limit:
			_ = cmd.Process.Kill()
			t.Errorf("%q does not end by SIGINT", cmd.Args[1:])
			return
		}
	}
}
