package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"
)

// object is a JSON object of a test; numbers in it are ints or json.Numbers.
type object = map[string]any

// canonical writes a value in the contract's canonical form: keys sorted by
// code point, no white space, integers only, escapes as in RFC 8785.
func canonical(v any) []byte {
	var b bytes.Buffer
	writeCanonical(&b, v)
	return b.Bytes()
}

func writeCanonical(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool, int, int64, uint32, uint64, json.Number:
		fmt.Fprint(b, v)
	case string:
		writeCanonicalString(b, v)
	case []any:
		writeCanonicalList(b, v)
	case []object:
		writeCanonicalList(b, v)
	case []int:
		writeCanonicalList(b, v)
	case []string:
		writeCanonicalList(b, v)
	case object:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys) // UTF-8 sorts as its code points do
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonicalString(b, k)
			b.WriteByte(':')
			writeCanonical(b, v[k])
		}
		b.WriteByte('}')
	default:
		panic(fmt.Sprintf("no canonical form of %T", v))
	}
}

func writeCanonicalList[T any](b *bytes.Buffer, list []T) {
	b.WriteByte('[')
	for i, x := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		writeCanonical(b, x)
	}
	b.WriteByte(']')
}

func writeCanonicalString(b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\b':
			b.WriteString(`\b`)
		case '\t':
			b.WriteString(`\t`)
		case '\n':
			b.WriteString(`\n`)
		case '\f':
			b.WriteString(`\f`)
		case '\r':
			b.WriteString(`\r`)
		default:
			if r < 0x20 {
				fmt.Fprintf(b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
}

// decode parses JSON with its numbers kept as they are written.
func decode(t testing.TB, data []byte) object {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	return o
}

// spaced writes an object as a person would, far from canonical: the form
// that is written must not matter.
func spaced(o object) []byte {
	b, err := json.MarshalIndent(o, "", "\t")
	if err != nil {
		panic(err)
	}
	return append(b, '\n')
}

// TestCanonicalOwn pins this package's own canonical form to examples written
// by hand, since everything else here is computed with it.
func TestCanonicalOwn(t *testing.T) {
	got := string(canonical(object{"b": []any{1, true, nil}, "a": "\"\\\b\t\n\f\r\x01/é\u2028<", "": object{}}))
	want := `{"":{},"a":"\"\\\b\t\n\f\r\u0001/é` + "\u2028" + `<","b":[1,true,null]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if strings.Contains(got, " ") {
		t.Error("white space in canonical form")
	}
}
