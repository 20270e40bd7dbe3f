package pages

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// wantNotAbsent asks for a page whose absence must not be believed.
func wantNotAbsent(t *testing.T, d *Disk, key Key) {
	t.Helper()
	if _, err := d.OpenObject(key); !errors.Is(err, ErrTierChanged) || errors.Is(err, ErrAbsent) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("open: %v, want ErrTierChanged alone", err)
	}
	if _, err := d.Has(key); !errors.Is(err, ErrTierChanged) {
		t.Errorf("has: %v, want ErrTierChanged", err)
	}
	if _, err := d.ReadBlob("b"); !errors.Is(err, ErrTierChanged) {
		t.Errorf("blob: %v, want ErrTierChanged", err)
	}
}

func TestAbsenceNeedsTheTier(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	key := testKey(1)
	page := randomPage(1, 5000)
	put(t, d, key, page)
	away := d.Dir() + ".away"
	if err := os.Rename(d.Dir(), away); err != nil { // as when its disk is unmounted
		t.Fatal(err)
	}
	wantNotAbsent(t, d, key)
	os.MkdirAll(filepath.Join(d.Dir(), objectDir(key)), 0o700) // and the mount point has directories
	wantNotAbsent(t, d, key)
	os.RemoveAll(d.Dir())
	if err := os.Rename(away, d.Dir()); err != nil {
		t.Fatal(err)
	}
	if got, err := read(d, key); err != nil || !bytes.Equal(got, page) {
		t.Errorf("after it came back: %v", err)
	}
}

func TestVanishedDirectory(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	key := testKey(1)
	page := randomPage(1, 5000)
	put(t, d, key, page)
	if err := os.RemoveAll(filepath.Join(d.Dir(), objectDir(key))); err != nil {
		t.Fatal(err)
	}
	if _, err := d.OpenObject(key); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v, want ErrAbsent: the tier itself is there", err)
	}
	put(t, d, key, page)
	if got, err := read(d, key); err != nil || !bytes.Equal(got, page) {
		t.Errorf("after the directory was made again: %v", err)
	}
	must(d.Recount(t.Context()))(t)
}

func TestTierID(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	if !isHex(d.ID(), 32) {
		t.Fatalf("ID %q", d.ID())
	}
	again := must(OpenDisk(DiskConfig{Dir: d.Dir(), TierID: d.ID()}))(t)
	if again.ID() != d.ID() {
		t.Error("another ID the second time")
	}
	for _, dir := range []string{d.Dir(), t.TempDir(), filepath.Join(t.TempDir(), "absent")} {
		_, err := OpenDisk(DiskConfig{Dir: dir, TierID: randomHex(16)})
		if !errors.Is(err, ErrTierChanged) {
			t.Errorf("%s: %v, want ErrTierChanged", dir, err)
		}
		if dir != d.Dir() {
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("%s: a tier that was refused has left %v", dir, left)
			}
		}
	}
}
