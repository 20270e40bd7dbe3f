package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// Page bytes describe themselves: each 8-byte word is a function of the
// page's content key, of the copy (two ranks may write different bytes for one
// key) and of its offset, so that a foreign, stale or shifted byte is seen.

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func pageSeed(key digest, copyNo int) uint64 {
	return mix(binary.LittleEndian.Uint64(key[:]) + uint64(copyNo)*0x632be59bd9b4e019)
}

// pageBytes returns the whole page.
func pageBytes(p page, copyNo int) []byte { return pageRange(p, copyNo, 0, p.bytes) }

// pageRange returns the bytes [from, to) of a page; from is a multiple of 8.
func pageRange(p page, copyNo int, from, to int64) []byte {
	seed := pageSeed(p.key, copyNo)
	b := make([]byte, 0, to-from+8)
	for off := from; off < to; off += 8 {
		b = binary.LittleEndian.AppendUint64(b, mix(seed+uint64(off)))
	}
	return b[:to-from]
}

// checkBytes compares what was read at from (a multiple of 8) with the page.
func checkBytes(p page, copyNo int, from int64, got []byte) error {
	want := pageRange(p, copyNo, from, from+int64(len(got)))
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d is %#02x, not %#02x", p.path, from+int64(i), got[i], want[i])
		}
	}
	return nil
}

// whichCopy tells which copy of the page the bytes are, wholly.
func whichCopy(p page, got []byte, copies ...int) (int, error) {
	if int64(len(got)) != p.bytes {
		return 0, fmt.Errorf("%s has %d bytes, not %d", p.path, len(got), p.bytes)
	}
	var err error
	for _, c := range copies {
		if err = checkBytes(p, c, 0, got); err == nil {
			return c, nil
		}
	}
	return 0, err
}

// checkPage reads one page file and compares every byte.
func checkPage(dir string, p page, copies ...int) error {
	if len(copies) == 0 {
		copies = []int{0}
	}
	got, err := os.ReadFile(dir + "/" + p.path)
	if err != nil {
		return err
	}
	_, err = whichCopy(p, got, copies...)
	return err
}

// checkGeneration compares every byte of a published generation.
func checkGeneration(dir string, g generation, copies ...int) error {
	for _, p := range g.pages() {
		if err := checkPage(dir, p, copies...); err != nil {
			return err
		}
	}
	return nil
}

// writePage writes a page in pieces, as engines do.
func writePage(f *os.File, p page, copyNo int) error {
	const piece = 1 << 20
	for off := int64(0); off < p.bytes; off += piece {
		if _, err := f.Write(pageRange(p, copyNo, off, min(off+piece, p.bytes))); err != nil {
			return err
		}
	}
	return nil
}

// checkOpenPage compares every byte through an open handle.
func checkOpenPage(f *os.File, p page, copies ...int) error {
	got, err := io.ReadAll(io.NewSectionReader(f, 0, p.bytes+1))
	if err != nil {
		return err
	}
	_, err = whichCopy(p, got, append(copies, 0)...)
	return err
}
