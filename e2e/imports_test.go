package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport says on which packages of this module each may rest, directly or
// not; a package below one of these counts as it. Arrows point down only.
var mayImport = map[string][]string{
	"pages":  {},
	"index":  {"pages"},
	"evict":  {"index", "pages"},
	"fusefs": {"evict", "index", "pages"},
	"cmd":    {"fusefs", "evict", "index", "pages"},
	"tools":  {"fusefs", "evict", "index", "pages"},
	"e2e":    {},
}

// TestImportDirection fails where a package imports what lies above it.
func TestImportDirection(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Deps \" \"}}", "ckptfs/...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	layer := func(pkg string) (string, bool) {
		rest, ours := strings.CutPrefix(pkg, "ckptfs/")
		first, _, _ := strings.Cut(rest, "/")
		return first, ours
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from, ours := layer(fields[0])
		if !ours {
			continue
		}
		allowed, known := mayImport[from]
		if !known {
			t.Errorf("%s is in no layer of this test", fields[0])
			continue
		}
		for _, dep := range fields[1:] {
			if to, ours := layer(dep); ours && to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s depends on %s", fields[0], dep)
			}
		}
	}
}
