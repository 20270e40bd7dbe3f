package pages

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"
)

// codecID is how an object's blocks are coded, as in its header.
type codecID uint8

const (
	codecRaw     codecID = 0
	codecZstd    codecID = 1 // RFC 8878: a frame for each plane
	codecHuffman codecID = 2 // Huffman coding alone, as in RFC 8878 section 4.2; huffman.go
)

func (c codecID) known() bool { return c <= codecHuffman }

// String gives the codec's name as status shows it.
func (c codecID) String() string {
	switch c {
	case codecRaw:
		return "raw"
	case codecZstd:
		return "zstd"
	case codecHuffman:
		return "huffman"
	}
	return fmt.Sprintf("codec %d", uint8(c))
}

// coding is how a page is to be coded: the codec, and 1 plane (the bytes as
// they are) or planeWidth of them.
type coding struct {
	codec  codecID
	planes int
}

// coder has what coding one block at a time needs. One goroutine uses it at a
// time; coderPool hands them out.
type coder struct {
	level   zstd.EncoderLevel
	enc     *zstd.Encoder // made when first needed
	dec     *zstd.Decoder
	huff    huff0.Scratch
	planes  []byte // a block with its planes separated
	encoded []byte
}

// coderPool keeps coders of one zstd level.
type coderPool struct {
	level zstd.EncoderLevel
	pool  sync.Pool
}

func (p *coderPool) get() *coder {
	if c, ok := p.pool.Get().(*coder); ok {
		return c
	}
	return &coder{level: max(p.level, zstd.SpeedFastest)}
}

func (p *coderPool) put(c *coder) { p.pool.Put(c) }

func (c *coder) separated(n int) []byte {
	if cap(c.planes) < n {
		c.planes = make([]byte, max(n, defaultBlockBytes))
	}
	return c.planes[:n]
}

// encode codes one block. The result is valid until the coder is used again,
// and is nil if it would not be shorter than src.
func (c *coder) encode(src []byte, how coding) ([]byte, error) {
	in := src
	if how.planes > 1 {
		in = c.separated(len(src))
		separatePlanes(in, src)
	}
	var err error
	switch how.codec {
	case codecZstd:
		err = c.encodeZstd(in, how.planes)
	case codecHuffman:
		c.encoded, err = appendHuffman(c.encoded[:0], in, how.planes, &c.huff)
	default:
		return nil, nil
	}
	if err != nil || len(c.encoded) >= len(src) {
		return nil, err
	}
	return c.encoded, nil
}

// encodeZstd makes one frame of each plane (a frame of several would code them
// with one table) and one of the bytes beyond the last word.
func (c *coder) encodeZstd(in []byte, planes int) error {
	if c.enc == nil {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(c.level),
			zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(maxBlockBytes))
		if err != nil {
			return err
		}
		c.enc = enc
	}
	c.encoded = c.encoded[:0]
	for n := len(in) / planes; planes > 0; planes-- {
		c.encoded = c.enc.EncodeAll(in[:n], c.encoded)
		in = in[n:]
	}
	if len(in) > 0 {
		c.encoded = c.enc.EncodeAll(in, c.encoded)
	}
	return nil
}

// decode decodes one block into dst, which has the block's raw length. The
// checksum of src has been verified, that of dst is the caller's to verify.
func (c *coder) decode(dst, src []byte, how coding) error {
	out := dst
	if how.planes > 1 {
		out = c.separated(len(dst))
	}
	var err error
	switch how.codec {
	case codecZstd:
		err = c.decodeZstd(out, src)
	case codecHuffman:
		err = decodeHuffman(out, src, how.planes, &c.huff)
	default:
		err = fmt.Errorf("%v does not shorten blocks", how.codec)
	}
	if err == nil && how.planes > 1 {
		joinPlanes(dst, out)
	}
	return err
}

func (c *coder) decodeZstd(out, src []byte) error {
	if c.dec == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(4*maxBlockBytes))
		if err != nil {
			return err
		}
		c.dec = dec
	}
	got, err := c.dec.DecodeAll(src, out[:0])
	if err != nil {
		return err
	}
	if len(got) != len(out) {
		return fmt.Errorf("zstd block of %d bytes, want %d", len(got), len(out))
	}
	return nil
}
