package pages

import "encoding/binary"

// Byte planes: a page is an array of 16- or 32-bit floating-point values, and
// in each of them the byte with sign and exponent has few likely values while
// the mantissa's bytes are noise. All first bytes together, then all second
// bytes and so on, lets an entropy coder see the difference. With a length that
// is no multiple of the width the last bytes stay as they are, at the end.
//
// A whole value is loaded or stored at a time, which is as fast as eight bytes
// at a time with shifts and masks, and half again as fast as single bytes.

// separatePlanes writes src to dst (of the same length) plane after plane.
func separatePlanes(dst, src []byte, width int) {
	n := len(src) / width
	copy(dst[n*width:], src[n*width:])
	switch width {
	case 2:
		p0, p1 := dst[:n], dst[n:2*n]
		for i := 0; i < len(p0) && i < len(p1); i++ {
			v := binary.LittleEndian.Uint16(src[2*i:])
			p0[i], p1[i] = byte(v), byte(v>>8)
		}
	case 4:
		p0, p1, p2, p3 := dst[:n], dst[n:2*n], dst[2*n:3*n], dst[3*n:4*n]
		for i := 0; i < len(p0) && i < len(p1) && i < len(p2) && i < len(p3); i++ {
			v := binary.LittleEndian.Uint32(src[4*i:])
			p0[i], p1[i], p2[i], p3[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
	default:
		copy(dst, src)
	}
}

// joinPlanes undoes separatePlanes.
func joinPlanes(dst, src []byte, width int) {
	n := len(dst) / width
	copy(dst[n*width:], src[n*width:])
	switch width {
	case 2:
		p0, p1 := src[:n], src[n:2*n]
		for i := 0; i < len(p0) && i < len(p1); i++ {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(p0[i])|uint16(p1[i])<<8)
		}
	case 4:
		p0, p1, p2, p3 := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
		for i := 0; i < len(p0) && i < len(p1) && i < len(p2) && i < len(p3); i++ {
			v := uint32(p0[i]) | uint32(p1[i])<<8 | uint32(p2[i])<<16 | uint32(p3[i])<<24
			binary.LittleEndian.PutUint32(dst[4*i:], v)
		}
	default:
		copy(dst, src)
	}
}
