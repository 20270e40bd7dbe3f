package index

import (
	"unicode/utf16"
	"unicode/utf8"
)

const lowerHexDigits = "0123456789abcdef"

// string reads a JSON string at pos and appends its canonical form: escaped
// are only ", \ and control characters, those as \b \t \n \f \r or else
// \u00xx in lower case (RFC 8785, section 3.2.2.2).
func (c *canonicalizer) string() error {
	start := c.pos
	c.pos++
	c.out = append(c.out, '"')
	for {
		plain := c.pos
		for c.pos < len(c.in) && c.in[c.pos] >= 0x20 && c.in[c.pos] != '"' && c.in[c.pos] != '\\' {
			c.pos++
		}
		c.out = append(c.out, c.in[plain:c.pos]...)
		switch {
		case c.pos == len(c.in):
			return c.failAt(start, "the string has no end")
		case c.in[c.pos] == '"':
			c.pos++
			c.out = append(c.out, '"')
			return nil
		case c.in[c.pos] == '\\':
			if err := c.escape(); err != nil {
				return err
			}
		default:
			return c.fail("a control character in a string must be escaped")
		}
	}
}

// escape reads one escape sequence at pos.
func (c *canonicalizer) escape() error {
	if c.pos+1 == len(c.in) {
		return c.fail("the string has no end")
	}
	var r rune
	switch ch := c.in[c.pos+1]; ch {
	case '"', '\\', '/':
		r = rune(ch)
	case 'b':
		r = '\b'
	case 't':
		r = '\t'
	case 'n':
		r = '\n'
	case 'f':
		r = '\f'
	case 'r':
		r = '\r'
	case 'u':
		return c.unicodeEscape()
	default:
		return c.fail("an unknown escape sequence in a string")
	}
	c.pos += 2
	c.out = appendEscaped(c.out, r)
	return nil
}

// unicodeEscape reads \uxxxx, or two of them that are a surrogate pair.
func (c *canonicalizer) unicodeEscape() error {
	r, ok := hex4(c.in[c.pos:])
	if !ok {
		return c.fail(`\u in a string needs four hex digits`)
	}
	size := 6
	if utf16.IsSurrogate(r) {
		low, ok := hex4(c.in[c.pos+size:])
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return c.fail("half of a surrogate pair is no character")
		}
		size = 12
	}
	c.pos += size
	c.out = appendEscaped(c.out, r)
	return nil
}

// hex4 reads \uxxxx at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, ch := range b[2:6] {
		switch {
		case ch >= '0' && ch <= '9':
			r = r<<4 | rune(ch-'0')
		case ch|0x20 >= 'a' && ch|0x20 <= 'f':
			r = r<<4 | rune(ch|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendEscaped appends one character of a canonical string.
func appendEscaped(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\t':
		return append(dst, `\t`...)
	case '\n':
		return append(dst, `\n`...)
	case '\f':
		return append(dst, `\f`...)
	case '\r':
		return append(dst, `\r`...)
	}
	if r < 0x20 {
		return append(dst, '\\', 'u', '0', '0', lowerHexDigits[r>>4], lowerHexDigits[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// appendString appends s, which is UTF-8, as a canonical string.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		dst = appendEscaped(dst, r)
	}
	return append(dst, '"')
}
