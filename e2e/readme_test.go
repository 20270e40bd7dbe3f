package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeWalkThrough types what the README's walk-through says, as printed but for the places.
func TestReadmeWalkThrough(t *testing.T) {
	for _, tool := range []string{"bash", "python3", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	_, section, _ := strings.Cut(readme(t), "\n## Walk-through\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) < 8 || !strings.Contains(blocks[0][1], "ckptfs mount") {
		t.Fatalf("the walk-through has %d steps, and the first does not mount", len(blocks))
	}
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		var script strings.Builder
		script.WriteString("set -eu\n")
		for _, block := range blocks[1:] {
			script.WriteString(strings.ReplaceAll(block[1], "/tmp/ckpt", m.path))
		}
		cmd := exec.Command("bash", "-c", script.String())
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 {
			t.Fatalf("%v; stdout:\n%s\nstderr:\n%s", err, out, stderr.String())
		}
		for _, want := range []string{`"published":false`, `"num_tokens":1500`, "-r--r--r--", "rank-1/recurrent/00000001"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("the walk-through does not print %s:\n%s", want, out)
			}
		}
	})
}

// rankScript is an engine's rank, on top of the README's functions: it stores what it is given, looks it up and compares.
const rankScript = `
import sys, time
from protocol import *

model, document, tokens, manifest, source, rank = sys.argv[1:]
rank, tokens = int(rank), list(struct.unpack(f"<{os.path.getsize(tokens) // 4}I", open(tokens, "rb").read()))
identity = identify(model, json.load(open(document)))
staging = f"{identity}/.staging/attempt"
if rank == 0:
    stage(identity, "attempt", tokens, json.load(open(manifest)))
while not os.path.exists(f"{staging}/plan.json"):
    time.sleep(0.001)
contents = lambda path: open(f"{source}/{path}", "rb").read()
store(identity, "attempt", rank, contents)
while True:
    lease, answer = find(identity, tokens + [1, 2, 3])
    if answer["generation"]:
        break
    lease.close()
top = f"{identity}/{answer['generation']}/rank-{rank}"
pages = [f"rank-{rank}/{group}/{page}" for group in os.listdir(top) for page in os.listdir(f"{top}/{group}")]
assert pages and all(open(f"{identity}/{answer['generation']}/{p}", "rb").read() == contents(p) for p in pages)
lease.close()
assert find(identity, [9, 9, 9])[1]["generation"] is None
print(answer["generation"])
`

// TestReadmeProtocol runs the protocol in Python as it is printed: the ranks of an engine store a generation and restore it.
func TestReadmeProtocol(t *testing.T) {
	python := tool(t, "python3")
	block := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(readme(t))
	if block == nil || strings.Count(block[1], "\n") > 45 {
		t.Fatalf("no protocol in Python, or one that is too long: %q", block)
	}
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		g := smallGeneration(newIdentity("readme", 2), conversation(1, 900))
		write := func(name string, data []byte) string {
			path := filepath.Join(m.dir, "engine", name)
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must(t, os.WriteFile(path, data, 0o644))
			return path
		}
		write("protocol.py", []byte(block[1]))
		script := write("rank.py", []byte(rankScript))
		for _, p := range g.pages() {
			write(p.path, pageBytes(p, 0))
		}
		args := []string{script, m.addModel(t, "model"), write("identity", spaced(g.ID.Doc)), write("tokens", tokenBytes(g.Tokens)),
			write("manifest", spaced(g.manifest())), filepath.Dir(script)}
		var ranks []*exec.Cmd
		var said [2]strings.Builder
		for rank := range 2 {
			cmd := exec.Command(python, append(args, fmt.Sprint(rank))...)
			cmd.Stdout, cmd.Stderr = &said[rank], &said[rank]
			must(t, cmd.Start())
			ranks = append(ranks, cmd)
		}
		for rank, cmd := range ranks {
			if err := cmd.Wait(); err != nil || said[rank].String() != g.name()+"\n" {
				t.Errorf("rank %d: %v, it says %s", rank, err, said[rank].String())
			}
		}
		must(t, checkGeneration(filepath.Join(m.path, "model", g.ID.dir(), g.name()), g))
	})
}

// TestReadmeFlags: there is no flag in the README that there is not.
func TestReadmeFlags(t *testing.T) {
	known := map[string]bool{"--delete": true, "--timeout": true, "--now": true, "--help": true} // of rsync, systemctl and all
	flag := regexp.MustCompile(`--[a-z][a-z0-9-]+`)
	for _, line := range strings.Split(ckptfs(t, "help").out, "\n") {
		if command := strings.Fields(line); strings.HasPrefix(line, "  ") && len(command) > 1 && command[0][0] >= 'a' {
			for _, name := range flag.FindAllString(ckptfs(t, command[0], "--help").out, -1) {
				known[name] = true
			}
		}
	}
	for _, name := range flag.FindAllString(readme(t), -1) {
		if !known[name] {
			t.Errorf("the README names %s", name)
		}
	}
}

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../README.md")
	must(t, err)
	return string(b)
}
