package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIdentity(t *testing.T) {
	const canonical = `{"draft_revision":"","layout":{"page_bytes":65536},"parallel":{"world_size":2},"schema_version":1,` +
		`"source_revision":"89abcdef0123456789abcdef0123456789abcdef","target_revision":"git:0123456789abcdef0123456789abcdef01234567"}`
	sum := sha256.Sum256([]byte(canonical))
	want := hex.EncodeToString(sum[:])[:40] + "\n"
	spaced := strings.ReplaceAll(canonical, ",", ",\n ")
	file := filepath.Join(t.TempDir(), "identity.json")
	must(t, os.WriteFile(file, []byte(spaced), 0o644))

	if code, out, errs := runTest(t, "identity", file); code != exitOK || out != want {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %q", code, out, errs, want)
	}
	if code, out, _ := runTest(t, "identity", "--canonical", file); code != exitOK || out != canonical+"\n" {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
	var out bytes.Buffer
	code := run(t.Context(), commands(), []string{"identity", "-"}, streams{in: strings.NewReader(spaced), out: &out, err: &out})
	if code != exitOK || out.String() != want {
		t.Errorf("from stdin: exit code %d, %q", code, out.String())
	}
}

func TestIdentityRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "identity.json")
	must(t, os.WriteFile(file, []byte(`{"schema_version":1}`), 0o644))
	if code, out, errs := runTest(t, "identity", file); code != exitRefused || out != "" || !strings.Contains(errs, file) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	if code, _, errs := runTest(t, "identity", file+".missing"); code != exitFailure || errs == "" {
		t.Errorf("missing file: exit code %d, stderr %q", code, errs)
	}
}
