package pages

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The object format, byte by byte in FORMAT.md.
const (
	objectMagic   = "ckptpage"
	formatVersion = 1

	headerFixedBytes = 80      // before the block table
	headerEntryBytes = 12      // one block in it
	maxHeaderBytes   = 1 << 16 // so one read gets any header whole

	defaultBlockBytes = 256 << 10
	minBlockBytes     = 4 << 10
	maxBlockBytes     = 1 << 20

	// MaxRawBytes is the largest page an object can hold: the contract's limit.
	MaxRawBytes = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// header is what an object says of itself.
type header struct {
	key        Key
	codec      codecID
	planes     int // 1: blocks are coded as they are; planeWidth: their bytes are separated first
	blockBytes int64
	rawBytes   int64
	blocks     []blockEntry
}

// blockEntry is one block in the table. A block whose stored length is its raw
// length is stored as it is, whatever the object's codec.
type blockEntry struct {
	storedBytes uint32
	storedCRC   uint32 // checked before anything looks at the bytes
	rawCRC      uint32 // checked after decoding: a codec's own fault is seen too
}

func blockCount(rawBytes, blockBytes int64) int64 { return (rawBytes + blockBytes - 1) / blockBytes }

// headerBytes is the header's length for n blocks, which is where the payload begins.
func headerBytes(n int64) int64 { return alignUp(headerFixedBytes + headerEntryBytes*n) }

// storedBytes is the payload's length without its padding.
func (h *header) storedBytes() (n int64) {
	for _, b := range h.blocks {
		n += int64(b.storedBytes)
	}
	return n
}

// fileBytes is the length of the whole object.
func (h *header) fileBytes() int64 {
	return headerBytes(int64(len(h.blocks))) + alignUp(h.storedBytes())
}

// blockRawBytes is the raw length of block i: all have blockBytes but the last.
func (h *header) blockRawBytes(i int) int64 {
	return min(h.blockBytes, h.rawBytes-int64(i)*h.blockBytes)
}

// put writes the header into b, which is headerBytes long.
func (h *header) put(b []byte) {
	le := binary.LittleEndian
	clear(b)
	copy(b[0:], objectMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], uint32(len(b)))
	copy(b[20:], h.key[:])
	b[52], b[53] = byte(h.codec), byte(h.planes)
	le.PutUint32(b[56:], uint32(h.blockBytes))
	le.PutUint32(b[60:], uint32(len(h.blocks)))
	le.PutUint64(b[64:], uint64(h.rawBytes))
	le.PutUint64(b[72:], uint64(h.storedBytes()))
	for i, e := range h.blocks {
		at := b[headerFixedBytes+headerEntryBytes*i:]
		le.PutUint32(at[0:], e.storedBytes)
		le.PutUint32(at[4:], e.storedCRC)
		le.PutUint32(at[8:], e.rawCRC)
	}
	le.PutUint32(b[16:], headerCRC(b))
}

// headerCRC is over the whole header with its own field taken as zero.
func headerCRC(b []byte) uint32 {
	c := crc32.Update(0, castagnoli, b[:16])
	c = crc32.Update(c, castagnoli, []byte{0, 0, 0, 0})
	return crc32.Update(c, castagnoli, b[20:])
}

// badObject is why an object's bytes cannot be what was written. The reason is
// one word, as it appears in a quarantined file's name.
type badObject struct{ reason, detail string }

func (e *badObject) Error() string { return e.reason + ": " + e.detail }

// Is makes a bad object ErrLost.
func (e *badObject) Is(target error) bool { return target == ErrLost }

func bad(reason, format string, args ...any) error {
	return &badObject{reason: reason, detail: fmt.Sprintf(format, args...)}
}

// parseHeader reads the header of the object for key from b, the file's first
// bytes: all of it, or at least maxHeaderBytes. The errors are *badObject, or
// ErrNewerFormat for a sound object of a later version.
func parseHeader(b []byte, key Key, fileBytes int64) (*header, error) {
	le := binary.LittleEndian
	if len(b) < alignBytes {
		return nil, bad("short", "%d bytes, less than a header", len(b))
	}
	if string(b[:8]) != objectMagic {
		return nil, bad("magic", "begins with %q", b[:8])
	}
	n := int64(le.Uint32(b[12:]))
	if n < alignBytes || n > maxHeaderBytes || n%alignBytes != 0 {
		return nil, bad("header", "header of %d bytes", n)
	}
	if n > int64(len(b)) {
		return nil, bad("short", "%d bytes, less than its header of %d", len(b), n)
	}
	b = b[:n]
	if got, want := headerCRC(b), le.Uint32(b[16:]); got != want {
		return nil, bad("header", "header checksum %08x, want %08x", got, want)
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return nil, fmt.Errorf("object of format version %d: %w", v, ErrNewerFormat)
	}
	return parseFields(b, key, fileBytes)
}

// parseFields reads a header whose checksum was right. It still believes
// nothing: a wrong length must not become a wrong read.
func parseFields(b []byte, key Key, fileBytes int64) (*header, error) {
	le := binary.LittleEndian
	h := &header{
		codec:      codecID(b[52]),
		planes:     int(b[53]),
		blockBytes: int64(le.Uint32(b[56:])),
		rawBytes:   int64(le.Uint64(b[64:])),
	}
	copy(h.key[:], b[20:52])
	blocks := int64(le.Uint32(b[60:]))
	switch {
	case h.key != key:
		return nil, bad("foreign", "this is the object of key %x", h.key[:])
	case !h.codec.known() || (h.planes != 1 && h.planes != planeWidth):
		return nil, bad("header", "codec %d with planes of %d", h.codec, h.planes)
	case h.blockBytes < minBlockBytes || h.blockBytes > maxBlockBytes || h.blockBytes&(h.blockBytes-1) != 0:
		return nil, bad("header", "blocks of %d bytes", h.blockBytes)
	case h.rawBytes < 1 || h.rawBytes > MaxRawBytes:
		return nil, bad("header", "a page of %d bytes", h.rawBytes)
	case blocks != blockCount(h.rawBytes, h.blockBytes) || headerBytes(blocks) != int64(len(b)):
		return nil, bad("header", "%d blocks in a header of %d bytes", blocks, len(b))
	}
	h.blocks = make([]blockEntry, blocks)
	for i := range h.blocks {
		at := b[headerFixedBytes+headerEntryBytes*i:]
		e := blockEntry{le.Uint32(at[0:]), le.Uint32(at[4:]), le.Uint32(at[8:])}
		raw := h.blockRawBytes(i)
		if e.storedBytes == 0 || int64(e.storedBytes) > raw || (h.codec == codecRaw && int64(e.storedBytes) != raw) {
			return nil, bad("header", "block %d of %d bytes stored in %d", i, raw, e.storedBytes)
		}
		h.blocks[i] = e
	}
	if stored := int64(le.Uint64(b[72:])); stored != h.storedBytes() {
		return nil, bad("header", "payload of %d bytes, %d by its blocks", stored, h.storedBytes())
	}
	if fileBytes != h.fileBytes() {
		return nil, bad("short", "%d bytes, should be %d", fileBytes, h.fileBytes())
	}
	return h, nil
}
