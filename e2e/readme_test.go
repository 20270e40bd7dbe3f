package e2e

import (
	"os"
	"os/exec"
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
	readme, err := os.ReadFile("../README.md")
	must(t, err)
	_, section, _ := strings.Cut(string(readme), "\n## Walk-through\n")
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
