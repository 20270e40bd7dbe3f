package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPathBelow: what clear is to remove is exactly what was named.
func TestPathBelow(t *testing.T) {
	base := t.TempDir()
	mount, link := filepath.Join(base, "mnt"), filepath.Join(base, "link")
	for _, err := range []error{os.MkdirAll(filepath.Join(mount, "model"), 0o755), os.Symlink(mount, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ mount, path, want string }{
		{mount, "model", "model"},
		{mount, "./model//identity/", "model/identity"},
		{mount, ".", ""},
		{mount, mount, ""},
		{mount, mount + "/", ""},
		{mount, mount + "/model/identity", "model/identity"},
		{mount, mount + "/.model", ".model"}, // not model
		{link, mount + "/model", "model"},
		{mount, link + "/model", "model"},
	} {
		if got, err := pathBelow(c.mount, c.path); err != nil || got != c.want {
			t.Errorf("%s of %s is %q, %v; want %q", c.path, c.mount, got, err, c.want)
		}
	}
	for _, path := range []string{"", "..", "../mnt/model", "model/../..", base, "/", mount + "2"} {
		if got, err := pathBelow(mount, path); err == nil {
			t.Errorf("%q is taken for %q", path, got)
		}
	}
}

// TestClearOfAnEmptyPath: a variable that is not set does not mean everything.
func TestClearOfAnEmptyPath(t *testing.T) {
	if code, _, errOut := runTest(t, "clear", t.TempDir(), ""); code != exitUsage {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
}
