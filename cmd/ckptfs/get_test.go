package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// layOutGeneration makes a directory that looks like a generation with two ranks and two pages of each.
func layOutGeneration(t *testing.T) string {
	t.Helper()
	name := "00000004-prompt-" + strings.Repeat("ab", 20)
	dir := filepath.Join(t.TempDir(), strings.Repeat("cd", 20), name)
	writeTestFile(t, filepath.Join(dir, "..", "identity.json"), `{"parallel":{"world_size":2}}`)
	writeTestFile(t, filepath.Join(dir, "manifest.json"), fmt.Sprintf(
		`{"generation":%q,"world_size":2,"num_tokens":4,"page_groups":[{"name":"g","page_bytes":6,"positions":[0,3]}]}`, name))
	for rank := range 2 {
		for _, position := range []int{0, 3} {
			writeTestFile(t, filepath.Join(dir, fmt.Sprintf("rank-%d/g/%08d", rank, position)), fmt.Sprintf("r%d p%02d", rank, position))
		}
	}
	return dir
}

func writeTestFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// listFiles returns the paths below dir of everything that is no directory.
func listFiles(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func TestGet(t *testing.T) {
	generation, to := layOutGeneration(t), filepath.Join(t.TempDir(), "new")
	code, out, errOut := runTest(t, "get", generation, to)
	if code != exitOK || strings.TrimSpace(out) != filepath.Base(generation) || !strings.Contains(errOut, "4 pages (24 B)") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	want := "identity.json manifest.json rank-0/g/00000000 rank-0/g/00000003 rank-1/g/00000000 rank-1/g/00000003"
	if got := listFiles(t, to); got != want {
		t.Errorf("the files are\n%s, want\n%s", got, want)
	}
	if content, _ := os.ReadFile(filepath.Join(to, "rank-1/g/00000003")); string(content) != "r1 p03" {
		t.Errorf("a page holds %q", content)
	}
}

func TestGetOneRank(t *testing.T) {
	generation, to := layOutGeneration(t), t.TempDir()
	if code, _, errOut := runTest(t, "get", "--rank=1", "-q", generation, to); code != exitOK || errOut != "" {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	if got, want := listFiles(t, to), "identity.json manifest.json rank-1/g/00000000 rank-1/g/00000003"; got != want {
		t.Errorf("the files are\n%s, want\n%s", got, want)
	}
	for _, rank := range []string{"2", "-2"} {
		if code, _, errOut := runTest(t, "get", "--rank="+rank, generation, to); code != exitUsage || !strings.Contains(errOut, "0 to 1") {
			t.Errorf("rank %s: exit code %d, stderr %q", rank, code, errOut)
		}
	}
}

func TestGetChecksSizes(t *testing.T) {
	for _, content := range []string{"short", "too long"} {
		generation, to := layOutGeneration(t), t.TempDir()
		writeTestFile(t, filepath.Join(generation, "rank-0/g/00000003"), content)
		code, _, errOut := runTest(t, "get", generation, to)
		if code != exitFailure || !strings.Contains(errOut, "the manifest says 6") {
			t.Errorf("a page of %q: exit code %d, stderr %q", content, code, errOut)
		}
		if got := listFiles(t, to); strings.Contains(got, "rank-0/g/00000003") || strings.Contains(got, "manifest.json") || strings.Contains(got, ".get") {
			t.Errorf("a page of %q: left behind are %s", content, got)
		}
	}
}

// TestGetFromWhereOneIs: the name of a generation is not that under which it was reached.
func TestGetFromWhereOneIs(t *testing.T) {
	generation, link := layOutGeneration(t), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(generation, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(generation)
	for _, path := range []string{".", "rank-0/..", link, generation + "/"} {
		to := t.TempDir()
		code, out, errOut := runTest(t, "get", path, to)
		if code != exitOK || strings.TrimSpace(out) != filepath.Base(generation) || !strings.Contains(listFiles(t, to), "identity.json") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", path, code, out, errOut)
		}
	}
}

// TestGetOverAnother: a copy that is not carried through is not taken for the generation that was there before.
func TestGetOverAnother(t *testing.T) {
	generation, to := layOutGeneration(t), t.TempDir()
	writeTestFile(t, filepath.Join(to, "manifest.json"), `{"generation":"another"}`)
	page := filepath.Join(generation, "rank-1/g/00000003")
	writeTestFile(t, page, "too long")
	if code, _, errOut := runTest(t, "get", generation, to); code != exitFailure {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	if got := listFiles(t, to); strings.Contains(got, "manifest.json") {
		t.Errorf("the manifest of another generation stands over %s", got)
	}
	writeTestFile(t, page, "r1 p03")
	if code, _, errOut := runTest(t, "get", generation, to); code != exitOK {
		t.Errorf("again: exit code %d, stderr %q", code, errOut)
	}
}

// TestGetOfAStaging: what is not published has no pages that can be relied on.
func TestGetOfAStaging(t *testing.T) {
	staging, to := layOutGeneration(t), t.TempDir()
	writeTestFile(t, filepath.Join(staging, "manifest.json"), `{"num_tokens":4,"page_groups":[{"name":"g","page_bytes":6,"positions":[0,3]}]}`)
	if code, _, errOut := runTest(t, "get", staging, to); code != exitFailure || !strings.Contains(errOut, "not published") {
		t.Errorf("exit code %d, stderr %q; it has copied %q", code, errOut, listFiles(t, to))
	}
}

func TestGetOfNoGeneration(t *testing.T) {
	code, _, errOut := runTest(t, "get", t.TempDir(), t.TempDir())
	if code != exitFailure || !strings.Contains(errOut, "is no generation") {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
}
