package pages

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/huff0"
)

// The huffman codec: each plane of a block in pieces of at most 128 KiB, each
// coded by itself, and the bytes beyond the last word as one more piece. A piece is a 32-bit word, its stored length and in the two
// top bits how it is stored, and then its bytes. Values of floating point have
// no repetitions to find, so what zstd adds to this costs time and, by chance
// matches, even space; FORMAT.md has the figures.

const huffmanPieceBytes = 128 << 10

// How a piece is stored.
const (
	pieceRaw     = 0 // as it is
	pieceRepeat  = 1 // one byte, repeated
	pieceHuffman = 2 // RFC 8878 section 4.2: tree description, then four streams
)

// eachPiece calls f with the bounds of each piece of n separated bytes.
func eachPiece(n, planes int, f func(from, to int) error) error {
	plane := n / planes
	for p := range planes {
		for at := 0; at < plane; at += huffmanPieceBytes {
			from := p*plane + at
			if err := f(from, from+min(huffmanPieceBytes, plane-at)); err != nil {
				return err
			}
		}
	}
	if rest := plane * planes; rest < n {
		return f(rest, n)
	}
	return nil
}

// appendHuffman codes in, whose planes are separated, and appends it to dst.
func appendHuffman(dst, in []byte, planes int, s *huff0.Scratch) ([]byte, error) {
	s.Reuse = huff0.ReusePolicyNone
	err := eachPiece(len(in), planes, func(from, to int) error {
		piece := in[from:to]
		out, _, err := huff0.Compress4X(piece, s)
		kind := uint32(pieceHuffman)
		switch {
		case errors.Is(err, huff0.ErrUseRLE):
			kind, out = pieceRepeat, piece[:1]
		case errors.Is(err, huff0.ErrIncompressible) || (err == nil && len(out) >= len(piece)):
			kind, out = pieceRaw, piece
		case err != nil:
			return err
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(out))|kind<<30)
		dst = append(dst, out...)
		return nil
	})
	return dst, err
}

// decodeHuffman fills out, planes separated, from src.
func decodeHuffman(out, src []byte, planes int, s *huff0.Scratch) error {
	err := eachPiece(len(out), planes, func(from, to int) error {
		if len(src) < 4 {
			return errors.New("huffman block ends within a piece")
		}
		word := binary.LittleEndian.Uint32(src)
		n := int(word & (1<<30 - 1))
		if n > len(src)-4 {
			return fmt.Errorf("huffman piece of %d bytes, %d are left", n, len(src)-4)
		}
		stored := src[4 : 4+n]
		src = src[4+n:]
		return decodePiece(out[from:to:to], stored, word>>30, s)
	})
	if err == nil && len(src) != 0 {
		err = fmt.Errorf("%d bytes after a huffman block", len(src))
	}
	return err
}

func decodePiece(out, stored []byte, kind uint32, s *huff0.Scratch) error {
	switch {
	case kind == pieceRaw && len(stored) == len(out):
		copy(out, stored)
		return nil
	case kind == pieceRepeat && len(stored) == 1:
		for i := range out {
			out[i] = stored[0]
		}
		return nil
	case kind == pieceHuffman:
		table, streams, err := huff0.ReadTable(stored, s)
		if err != nil {
			return err
		}
		got, err := table.Decoder().Decompress4X(out[:0], streams)
		if err == nil && len(got) != len(out) {
			err = fmt.Errorf("huffman piece of %d bytes, want %d", len(got), len(out))
		}
		return err
	}
	return fmt.Errorf("piece of kind %d with %d bytes for %d", kind, len(stored), len(out))
}
