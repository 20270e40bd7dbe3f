package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func blobPath(t *testing.T, d *Disk, name string) string {
	return d.path(must(blobPlace(name))(t), name)
}

func TestBlobs(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	ctx := context.Background()
	want := map[string]string{}
	for i := range 40 {
		name, body := fmt.Sprintf("0123abcd.%08d-prompt", i), strings.Repeat("{}", i*100)
		if err := d.PutBlob(ctx, name, []byte(body), i%10 == 0); err != nil {
			t.Fatal(err)
		}
		want[name] = body
	}
	if err := d.PutBlob(ctx, "0123abcd.00000003-prompt", []byte("another"), false); err != nil {
		t.Fatal(err)
	}
	want["0123abcd.00000003-prompt"] = "another"
	d.RemoveBlob("0123abcd.00000004-prompt")
	delete(want, "0123abcd.00000004-prompt")
	n := 0
	err := d.EachBlob(ctx, func(name string, storedBytes int64) error {
		n++
		if b, err := d.ReadBlob(name); err != nil || string(b) != want[name] || storedBytes == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		return nil
	})
	if err != nil || n != len(want) {
		t.Errorf("%d blobs, want %d; %v", n, len(want), err)
	}
	if _, err := d.ReadBlob("0123abcd.00000004-prompt"); !errors.Is(err, ErrAbsent) {
		t.Errorf("removed: %v", err)
	}
	for _, name := range []string{"", ".hidden", "a/b", strings.Repeat("x", 201), "nul\x00"} {
		if err := d.PutBlob(ctx, name, nil, false); !errors.Is(err, unix.EINVAL) {
			t.Errorf("name %q: %v, want EINVAL", name, err)
		}
	}
}

func TestBadBlobs(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	ctx := context.Background()
	body := bytes.Repeat([]byte("manifest "), 10)
	path := blobPath(t, d, "b")
	file := func() []byte {
		if err := d.PutBlob(ctx, "b", body, false); err != nil {
			t.Fatal(err)
		}
		return must(os.ReadFile(path))(t)
	}
	wantLost := func(what string) {
		t.Helper()
		if _, err := d.ReadBlob("b"); !errors.Is(err, ErrLost) {
			t.Fatalf("%s: %v, want ErrLost", what, err)
		}
		if _, err := d.ReadBlob("b"); !errors.Is(err, ErrAbsent) {
			t.Fatalf("%s, again: %v, want ErrAbsent", what, err)
		}
	}
	for off := range int64(len(file())) {
		file()
		flipBit(t, path, off, uint(off)%8)
		wantLost(fmt.Sprint("a flipped bit at ", off))
	}
	for _, n := range []int64{0, 10, 64, 100} {
		file()
		os.Truncate(path, n)
		wantLost(fmt.Sprint("truncated to ", n))
	}
	d.PutBlob(ctx, "other", body, false)
	other := must(os.ReadFile(blobPath(t, d, "other")))(t)
	file()
	os.WriteFile(path, other, 0o600)
	wantLost("another blob in its place")
	os.Mkdir(path, 0o700)
	wantLost("a directory in its place")
	must(d.Recount(ctx))(t)
}
