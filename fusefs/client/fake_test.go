package client

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	testGeneration = "00000004-prompt-0123456789012345678901234567890123456789"
	testManifest   = `{"schema_version":2,"kind":"prompt","request":"r","num_tokens":4}`
)

// testOptions are what every rank of the tests stages.
var testOptions = StageOptions{Name: "attempt", Manifest: []byte(testManifest), Tokens: []uint32{1, 2, 3, 4}}

// fakeIdentity is an identity directory in a plain temporary directory. The
// test plays the filesystem: it writes plan.json and error where ckptfs would.
type fakeIdentity struct {
	t   *testing.T
	dir string
}

func newFakeIdentity(t *testing.T) *fakeIdentity {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".staging"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &fakeIdentity{t, dir}
}

// path leads into the staging directory of the attempt.
func (f *fakeIdentity) path(elements ...string) string {
	return filepath.Join(append([]string{f.dir, ".staging", testOptions.Name}, elements...)...)
}

func (f *fakeIdentity) mkdir() {
	f.t.Helper()
	if err := os.Mkdir(f.path(), 0o755); err != nil {
		f.t.Fatal(err)
	}
}

// write makes a file in the staging directory, with the directories above it.
func (f *fakeIdentity) write(name, content string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fakeIdentity) read(name string) string {
	content, err := os.ReadFile(f.path(name))
	if err != nil {
		return ""
	}
	return string(content)
}

// plan writes plan.json.
func (f *fakeIdentity) plan(missing ...Page) {
	f.t.Helper()
	text, err := json.Marshal(Plan{Generation: testGeneration, Missing: missing})
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("plan.json", string(text))
}

// staged returns a staging whose plan misses the pages, in the directory as the
// test may have laid it out.
func (f *fakeIdentity) staged(missing ...Page) *Staging {
	f.t.Helper()
	f.write("manifest.json", testManifest)
	f.plan(missing...)
	s, err := Stage(f.t.Context(), f.dir, testOptions)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not say %q", err, word)
		}
	}
}
