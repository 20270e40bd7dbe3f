package pages

import "encoding/binary"

// Byte planes: a page is an array of 16- or 32-bit floating-point values, and
// in each of them the byte with sign and exponent has few likely values while
// the mantissa's bytes are noise. The bytes of all 32-bit words by their
// position, all first bytes together and so on, let an entropy coder see the
// difference. Two 16-bit values are such a word too: their bytes lie in planes
// of their own just as well, and a word at a time is twice as fast as half a
// word at a time. Bytes beyond the last word stay as they are, at the end.

// planeWidth is the number of planes of a block whose bytes are separated.
const planeWidth = 4

// separatePlanes writes src to dst (of the same length) plane after plane.
func separatePlanes(dst, src []byte) {
	n := len(src) / planeWidth
	p0, p1, p2, p3 := dst[:n], dst[n:2*n], dst[2*n:3*n], dst[3*n:4*n]
	for i := 0; i < len(p0) && i < len(p1) && i < len(p2) && i < len(p3); i++ {
		v := binary.LittleEndian.Uint32(src[4*i:])
		p0[i], p1[i], p2[i], p3[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	copy(dst[4*n:], src[4*n:])
}

// joinPlanes undoes separatePlanes.
func joinPlanes(dst, src []byte) {
	n := len(dst) / planeWidth
	p0, p1, p2, p3 := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
	for i := 0; i < len(p0) && i < len(p1) && i < len(p2) && i < len(p3); i++ {
		v := uint32(p0[i]) | uint32(p1[i])<<8 | uint32(p2[i])<<16 | uint32(p3[i])<<24
		binary.LittleEndian.PutUint32(dst[4*i:], v)
	}
	copy(dst[4*n:], src[4*n:])
}
