package client

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "00000000")
	if err := os.WriteFile(path, []byte("8 bytes."), 0o444); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 8)
	if err := ReadPage(path, buffer); err != nil || string(buffer) != "8 bytes." {
		t.Errorf("ReadPage: %v, %q", err, buffer)
	}
	if err := ReadPage(path, make([]byte, 9)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ReadPage of a short page: %v", err)
	}
	m, err := MapPage(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if string(m.Data) != "8 bytes." {
		t.Errorf("the mapping has %q", m.Data)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenPage(path); !errors.Is(err, unix.ENOENT) {
		t.Errorf("OpenPage of nothing: %v", err)
	}
}
