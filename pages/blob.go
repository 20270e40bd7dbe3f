package pages

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Blobs are small named files beside the objects: what a generation is (its
// manifest and identity), so that the index can be rebuilt from the disk tier
// alone. <dir>/generations/<2 hex>/<name>, where the two digits are the last
// byte of the name's CRC-32C.

const (
	blobMagic       = "ckptblob"
	blobHeaderBytes = 64
	// MaxBlobBytes is the largest blob: two manifests of the largest size.
	MaxBlobBytes = 32 << 20
)

// blobPlace checks the name and gives its directory.
func blobPlace(name string) (dir string, err error) {
	if name == "" || len(name) > 200 || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("blob name %q: %w", name, unix.EINVAL)
	}
	return filepath.Join(blobDir, fmt.Sprintf("%02x", crc32c([]byte(name))&0xff)), nil
}

// blobKey is the lock that changes of the blob take: no object has it, for all
// that anyone can compute.
func blobKey(name string) (k Key) {
	copy(k[:], "blob")
	binary.LittleEndian.PutUint32(k[28:], crc32c([]byte(name)))
	return k
}

// PutBlob writes the blob, replacing what is there. Name is 1..200 bytes
// without a slash and a leading dot. Durability and errors as for Put.
func (d *Disk) PutBlob(ctx context.Context, name string, body []byte, durable bool) error {
	dir, err := blobPlace(name)
	if err != nil {
		return err
	}
	if len(body) > MaxBlobBytes {
		return fmt.Errorf("blob %s: %d bytes: %w", name, len(body), unix.EFBIG)
	}
	defer d.keys.lock(blobKey(name))()
	file := make([]byte, blobHeaderBytes, blobHeaderBytes+len(body))
	putBlobHeader(file, name, body)
	file = append(file, body...)
	_, err = d.writeFile(ctx, newFile{
		dir: dir, name: name, maxBytes: int64(len(file)), durable: durable,
		fill: func(write func(b []byte, off int64) error) error { return write(file, 0) },
	})
	if err != nil {
		return fmt.Errorf("put blob %s: %w", name, err)
	}
	return nil
}

func putBlobHeader(b []byte, name string, body []byte) {
	le := binary.LittleEndian
	copy(b[0:], blobMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], blobHeaderBytes)
	le.PutUint64(b[20:], uint64(len(body)))
	le.PutUint32(b[28:], crc32c(body))
	le.PutUint32(b[32:], crc32c([]byte(name)))
	le.PutUint32(b[16:], headerCRC(b[:blobHeaderBytes]))
}

// parseBlob gives the body of a blob file read whole.
func parseBlob(b []byte, name string) ([]byte, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < blobHeaderBytes:
		return nil, bad("short", "%d bytes, less than a header", len(b))
	case string(b[:8]) != blobMagic:
		return nil, bad("magic", "begins with %q", b[:8])
	case headerCRC(b[:blobHeaderBytes]) != le.Uint32(b[16:]):
		return nil, bad("header", "wrong header checksum")
	case le.Uint32(b[8:]) != formatVersion || le.Uint32(b[12:]) != blobHeaderBytes:
		return nil, fmt.Errorf("blob of format version %d: %w", le.Uint32(b[8:]), ErrNewerFormat)
	case le.Uint32(b[32:]) != crc32c([]byte(name)):
		return nil, bad("foreign", "the blob of another name")
	case le.Uint64(b[20:]) != uint64(len(b)-blobHeaderBytes):
		return nil, bad("short", "%d bytes, should be %d", len(b)-blobHeaderBytes, le.Uint64(b[20:]))
	case crc32c(b[blobHeaderBytes:]) != le.Uint32(b[28:]):
		return nil, bad("checksum", "wrong checksum")
	}
	return b[blobHeaderBytes:], nil
}

// ReadBlob gives the blob's bytes. ErrAbsent, ErrLost or trouble, as for objects.
func (d *Disk) ReadBlob(name string) ([]byte, error) {
	dir, err := blobPlace(name)
	if err != nil {
		return nil, err
	}
	body, st, err := d.readBlob(dir, name)
	if lost := (*badObject)(nil); errors.As(err, &lost) {
		defer d.keys.lock(blobKey(name))()
		err = d.condemn(dir, name, Key{}, uint64(st.Dev), st.Ino, err)
	}
	if errors.Is(err, unix.ENOENT) {
		err = d.confirmAbsent(err)
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", name, err)
	}
	return body, nil
}

func (d *Disk) readBlob(dir, name string) (_ []byte, st unix.Stat_t, err error) {
	f, err := d.fs.open(d.path(dir, name), unix.O_RDONLY)
	if errors.Is(err, unix.ELOOP) {
		return nil, st, bad("foreign", "a symbolic link")
	}
	if err != nil {
		return nil, st, err
	}
	defer d.fs.close(f)
	if err := retryEINTR(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return nil, st, pathError(StepStat, f.Name(), err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return nil, st, bad("directory", "a directory in its place")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, st, bad("foreign", "mode %o", st.Mode)
	case st.Size > blobHeaderBytes+MaxBlobBytes:
		return nil, st, bad("foreign", "%d bytes", st.Size)
	}
	b := make([]byte, st.Size)
	n, err := d.fs.readAt(f, b, 0)
	if err != nil && err != io.EOF {
		return nil, st, err
	}
	body, err := parseBlob(b[:n], name)
	return body, st, err
}

// RemoveBlob takes the blob away. An absent blob is no error.
func (d *Disk) RemoveBlob(name string) error {
	dir, err := blobPlace(name)
	if err != nil {
		return err
	}
	if d.cfg.ReadOnly {
		return fmt.Errorf("remove blob %s: %w", name, unix.EROFS)
	}
	defer d.keys.lock(blobKey(name))()
	if err := d.removeFile(dir, name); err != nil {
		return fmt.Errorf("remove blob %s: %w", name, err)
	}
	return nil
}

// EachBlob calls f with the name of every blob and its real bytes, in no order,
// and stops at f's first error. The blobs are not read.
func (d *Disk) EachBlob(ctx context.Context, f func(name string, storedBytes int64) error) error {
	return d.eachFile(ctx, func(rel string, st unix.Stat_t) error {
		dir, name := filepath.Split(rel)
		if want, err := blobPlace(name); err != nil || dir != want+"/" {
			return nil
		}
		return f(name, realBytes(st))
	})
}
