package index

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// This file reads what Canonical wrote. Canonical has checked everything, so
// none of it can meet bad input; it only finds the parts again, without
// building a tree that would be many times larger than the text.

// rawMember is one member of a canonical object.
type rawMember struct {
	key   string
	value []byte // canonical JSON
}

// rawObject is a canonical object, its members sorted by key.
type rawObject []rawMember

// get returns the value of key.
func (o rawObject) get(key string) ([]byte, bool) {
	i, ok := slices.BinarySearchFunc(o, key, func(m rawMember, key string) int { return strings.Compare(m.key, key) })
	if !ok {
		return nil, false
	}
	return o[i].value, true
}

// appendTo appends the object's canonical JSON.
func (o rawObject) appendTo(dst []byte) []byte {
	dst = append(dst, '{')
	for i, m := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, m.key)
		dst = append(dst, ':')
		dst = append(dst, m.value...)
	}
	return append(dst, '}')
}

// parseRawObject splits a canonical object; false if v is something else.
// The values alias v.
func parseRawObject(v []byte) (rawObject, bool) {
	if v[0] != '{' {
		return nil, false
	}
	var o rawObject
	for at := 1; v[at] != '}'; {
		if v[at] == ',' {
			at++
		}
		colon := at + valueLen(v[at:])
		size := valueLen(v[colon+1:])
		o = append(o, rawMember{key: decodeString(v[at:colon]), value: v[colon+1 : colon+1+size]})
		at = colon + 1 + size
	}
	return o, true
}

// eachElement calls f for each element of a canonical array, until f fails;
// false if v is something else.
func eachElement(v []byte, f func(i int, element []byte) error) (bool, error) {
	if v[0] != '[' {
		return false, nil
	}
	i := 0
	for at := 1; v[at] != ']'; i++ {
		if v[at] == ',' {
			at++
		}
		size := valueLen(v[at:])
		if err := f(i, v[at:at+size]); err != nil {
			return true, err
		}
		at += size
	}
	return true, nil
}

// valueLen returns the length of the canonical value that b starts with.
func valueLen(b []byte) int {
	switch b[0] {
	case '"':
		return stringLen(b)
	case '{', '[':
		depth := 0
		for at := 0; ; at++ {
			switch b[at] {
			case '"':
				at += stringLen(b[at:]) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
		}
	}
	for at := 1; at < len(b); at++ {
		if ch := b[at]; ch == ',' || ch == ']' || ch == '}' {
			return at
		}
	}
	return len(b)
}

// stringLen returns the length of the quoted string that b starts with.
func stringLen(b []byte) int {
	for at := 1; ; at++ {
		switch b[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
}

// decodeString returns the characters of a canonical string.
func decodeString(v []byte) string {
	v = v[1 : len(v)-1]
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v)
	}
	var b strings.Builder
	for at := 0; at < len(v); at++ {
		if v[at] != '\\' {
			b.WriteByte(v[at])
			continue
		}
		at++
		switch v[at] {
		case 'b':
			b.WriteByte('\b')
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'f':
			b.WriteByte('\f')
		case 'r':
			b.WriteByte('\r')
		case 'u':
			r, _ := hex4(v[at-1:])
			b.WriteRune(r)
			at += 4
		default:
			b.WriteByte(v[at])
		}
	}
	return b.String()
}

// rawString returns the characters of v if it is a string.
func rawString(v []byte) (string, bool) {
	if v[0] != '"' {
		return "", false
	}
	return decodeString(v), true
}

// rawInt returns v if it is an integer that fits.
func rawInt(v []byte) (int64, bool) {
	if len(v) > 20 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// countCommas bounds the elements of a canonical array of numbers.
func countCommas(v []byte) int { return bytes.Count(v, []byte{','}) }

// rawText, rawNumber and rawDigests write canonical values.
func rawText(s string) []byte { return appendString(nil, s) }

func rawNumber(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

func rawDigests(ds []Digest) []byte {
	b := append(make([]byte, 0, 2+len(ds)*67), '[')
	for i, d := range ds {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = hex.AppendEncode(b, d[:])
		b = append(b, '"')
	}
	return append(b, ']')
}
