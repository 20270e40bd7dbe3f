package pages

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var updateFixtures = flag.Bool("update", false, "write the fixtures of this format version anew")

// fixtures are objects and a blob as this version wrote them when the format
// was fixed. Every later version must read them.
var fixtures = []struct {
	file string
	mode Compress
	page []byte
}{
	{"v1-raw", CompressOff, randomPage(101, 5000)},
	{"v1-huffman", CompressAuto, append(fp8Page(102, 30_000), make([]byte, 10_001)...)},
	{"v1-huffman-planes", CompressAuto, append(fp32Page(103, 30_000), make([]byte, 300_003)...)},
	{"v1-zstd", CompressAuto, rowsPage(104, 300_000)},
	{"v1-zstd-planes", CompressZstd, append(bf16Page(105, 20_000), make([]byte, 280_001)...)},
}

const (
	fixtureDir  = "testdata"
	fixtureBlob = "v1-blob"
)

func TestFixtures(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	for i, f := range fixtures {
		path := filepath.Join(fixtureDir, f.file)
		if *updateFixtures {
			w := must(OpenDisk(DiskConfig{Dir: d.Dir(), Compress: f.mode, DiskBytesPerSec: 1}))(t)
			put(t, w, testKey(i), f.page)
			if err := os.WriteFile(path, must(os.ReadFile(w.ObjectPath(testKey(i))))(t), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		object := must(os.ReadFile(path))(t)
		if err := os.WriteFile(d.ObjectPath(testKey(i)), object, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := read(d, testKey(i))
		if err != nil || !bytes.Equal(got, f.page) {
			t.Errorf("%s: not the page that it was made of, %v", f.file, err)
		}
	}
	path := filepath.Join(fixtureDir, fixtureBlob)
	body := []byte(`{"a generation":"whole on disk"}`)
	if *updateFixtures {
		d.PutBlob(context.Background(), "fixture", body, false)
		os.WriteFile(path, must(os.ReadFile(blobPath(t, d, "fixture")))(t), 0o644)
	}
	got, err := parseBlob(must(os.ReadFile(path))(t), "fixture")
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("%s: %q, %v", fixtureBlob, got, err)
	}
	must(d.Recount(context.Background()))(t)
}

// This version still writes what it wrote when the format was fixed (raw
// objects and blobs; what a compressor gives may change with its version).
func TestFormatIsWrittenAsFixed(t *testing.T) {
	d := openTestDisk(t, DiskConfig{Compress: CompressOff})
	put(t, d, testKey(0), fixtures[0].page)
	got := must(os.ReadFile(d.ObjectPath(testKey(0))))(t)
	if want := must(os.ReadFile(filepath.Join(fixtureDir, fixtures[0].file)))(t); !bytes.Equal(got, want) {
		t.Error("a raw object is not written as it was")
	}
}

// With -fuzzminimizetime=10x: shrinking inputs of 4 KiB takes all of the time otherwise.
func FuzzHeader(f *testing.F) {
	for i, fix := range fixtures {
		b, err := os.ReadFile(filepath.Join(fixtureDir, fix.file))
		if err != nil {
			f.Fatal(err)
		}
		key := testKey(i)
		f.Add(b[:alignBytes], key[:], int64(len(b)))
	}
	f.Fuzz(func(t *testing.T, b, k []byte, fileBytes int64) {
		var key Key
		copy(key[:], k)
		h, err := parseHeader(b, key, fileBytes)
		if err != nil {
			if !errors.Is(err, ErrLost) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("%v is neither loss nor a newer version", err)
			}
			// Behind the checksum too nothing may be believed.
			if len(b) >= alignBytes {
				h, err = parseFields(b[:len(b)&^(alignBytes-1)], key, fileBytes)
			}
			if err != nil {
				return
			}
		}
		if h.fileBytes() != fileBytes || h.key != key {
			t.Fatal("accepted a header of another file")
		}
		again := make([]byte, headerBytes(int64(len(h.blocks))))
		h.put(again)
		if _, err := parseHeader(again, key, fileBytes); err != nil {
			t.Fatalf("written again it is refused: %v", err)
		}
	})
}

func FuzzBlob(f *testing.F) {
	b, err := os.ReadFile(filepath.Join(fixtureDir, fixtureBlob))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "fixture")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		if body, err := parseBlob(b, name); err == nil && len(body) != len(b)-blobHeaderBytes {
			t.Fatal("a body of the wrong length")
		}
	})
}
