package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFsckOfNoStore: a directory that is no store stays as it is.
func TestFsckOfNoStore(t *testing.T) {
	for _, repair := range []string{"--repair=false", "--repair"} {
		dir := t.TempDir()
		code, _, errOut := runTest(t, "fsck", repair, "--state", dir)
		if code != exitState || !strings.Contains(errOut, "holds no store") {
			t.Errorf("%s: exit code %d, stderr %q", repair, code, errOut)
		}
		if got := listFiles(t, dir); got != "" {
			t.Errorf("%s made %s", repair, got)
		}
	}
}

// TestFsckWithoutItsDiskTier: pages are given up only if it is said where they were.
func TestFsckWithoutItsDiskTier(t *testing.T) {
	dir := t.TempDir()
	disk, elsewhere := filepath.Join(dir, "disk"), filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := runTest(t, "fsck", "--repair", "--state", dir); code != exitOK || !strings.HasPrefix(out, "there was no index") {
		t.Fatalf("a new store: exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	if err := os.Rename(disk, elsewhere); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := runTest(t, "fsck", "--repair", "--state", dir); code != exitState || !strings.Contains(errOut, "--l2-dir "+disk) {
		t.Errorf("without its disk tier: exit code %d, stderr %q", code, errOut)
	}
	if got := listFiles(t, dir); strings.Contains(got, ".bad") {
		t.Errorf("the index was given up: %s", got)
	}
	for _, at := range []string{elsewhere, disk} {
		if code, _, errOut := runTest(t, "fsck", "--repair", "--state", dir, "--l2-dir", at); code != exitOK {
			t.Errorf("--l2-dir %s: exit code %d, stderr %q", at, code, errOut)
		}
	}
}
