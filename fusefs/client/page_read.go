package client

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// openTries bounds how often an open is repeated that met a page on its way
// from one tier to the other.
const openTries = 5

// OpenPage opens a page of a published generation for reading. The open file is
// a lease on the page.
func OpenPage(path string) (*os.File, error) {
	for try := 1; ; try++ {
		f, err := open(path, unix.O_RDONLY)
		if err == nil || !isErrno(err, unix.ESTALE) || try == openTries {
			return f, err
		}
	}
}

// ReadPage fills buffer with a page; its length must be the group's page_bytes.
func ReadPage(path string, buffer []byte) error {
	f, err := OpenPage(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := f.ReadAt(buffer, 0)
	if err == io.EOF {
		return fmt.Errorf("read %s: %d bytes instead of %d: %w", path, n, len(buffer), io.ErrUnexpectedEOF)
	}
	return err
}

// Mapping is a page in the address space, shared with the tier's own memory.
type Mapping struct {
	// Data must not be written to, and not be used after Close.
	Data []byte
}

// MapPage maps a page read-only. The bytes stay right until Close, also when
// the generation is deleted meanwhile.
func MapPage(path string) (*Mapping, error) {
	f, err := OpenPage(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	return &Mapping{Data: data}, nil
}

// Close unmaps the page.
func (m *Mapping) Close() error {
	data := m.Data
	m.Data = nil
	return unix.Munmap(data)
}
