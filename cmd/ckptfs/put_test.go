package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/fusefs/client"
)

func TestPutSource(t *testing.T) {
	dir := layOutGeneration(t)
	source, err := openPutSource(dir, "")
	if err != nil || source.tokens != nil {
		t.Fatalf("a generation that was published before: %v, tokens %v", err, source.tokens)
	}
	if pages := pagesOf(source.manifest, allRanks, worldSize(filepath.Dir(dir))); len(pages) != 4 || totalBytes(pages) != 24 {
		t.Errorf("the pages are %v", pages)
	}
	_, err = source.page(client.Page{Path: "rank-0/g/00000003", Bytes: 7})
	if err == nil || !strings.Contains(err.Error(), "has 6 bytes, and the manifest wants 7") {
		t.Errorf("a page of another size: %v", err)
	}
	withTokens := source
	withTokens.tokens = []uint32{1}
	if source.stagingName() == withTokens.stagingName() {
		t.Error("two contents have one staging name")
	}
}

func TestPutSourceNeedsTokens(t *testing.T) {
	dir := t.TempDir()
	writeTestFile(t, filepath.Join(dir, "manifest.json"), `{"num_tokens":1}`)
	if _, err := openPutSource(dir, ""); !os.IsNotExist(err) || !strings.Contains(err.Error(), "tokens") {
		t.Errorf("without tokens: %v", err)
	}
	writeTestFile(t, filepath.Join(dir, "tokens"), "12345")
	if _, err := openPutSource(dir, ""); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("with 5 bytes of tokens: %v", err)
	}
}

func TestWithRequestKeepsEverythingElse(t *testing.T) {
	got, err := withRequest([]byte(`{"request":"old","engine":{"n":12345678901234567890},"num_tokens":1}`), `a "new" one`)
	if want := `{"engine":{"n":12345678901234567890},"num_tokens":1,"request":"a \"new\" one"}`; err != nil || string(got) != want {
		t.Errorf("withRequest = %s, %v; want %s", got, err, want)
	}
	if got, err := withRequest([]byte("null"), "r"); err == nil {
		t.Errorf("null became %s", got)
	}
}

func TestPutWithoutIdentity(t *testing.T) {
	code, _, errOut := runTest(t, "put", t.TempDir(), layOutGeneration(t))
	if code != exitUsage || !strings.Contains(errOut, "--identity FILE") {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
	identity := filepath.Join(t.TempDir(), "identity.json")
	writeTestFile(t, identity, "{}")
	mount := t.TempDir()
	code, _, errOut = runTest(t, "put", "--identity", identity, filepath.Join(mount, "model"), layOutGeneration(t))
	if code != exitFailure || !strings.Contains(errOut, "is not a ckptfs mount") {
		t.Errorf("no mount: exit code %d, stderr %q", code, errOut)
	}
	if got := listFiles(t, mount); got != "" {
		t.Errorf("left behind in what is no mount: %s", got)
	}
}

func TestTokensFlag(t *testing.T) {
	dir := t.TempDir()
	writeTestFile(t, filepath.Join(dir, "t"), "\x01\x00\x00\x00\x02\x00\x00\x00")
	writeTestFile(t, filepath.Join(dir, "t.json"), "[1, 2]\n")
	for path, in := range map[string]string{filepath.Join(dir, "t"): "", filepath.Join(dir, "t.json"): "", "-": " [1,2]"} {
		tokens, err := readTokensFlag(path, strings.NewReader(in))
		if err != nil || len(tokens) != 2 || tokens[1] != 2 {
			t.Errorf("%s: tokens %v, %v", path, tokens, err)
		}
	}
	if tokens, err := readTokensFlag("-", strings.NewReader("[1,2")); err != nil || len(tokens) != 1 {
		t.Errorf("a token that looks like a bracket: %v, %v", tokens, err)
	}
	if _, err := readTokensFlag("-", strings.NewReader(`["a"]`)); err == nil {
		t.Error("words are taken for tokens")
	}
}
