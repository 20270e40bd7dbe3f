package index

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{}`, `{}`},
		{" \t\r\n[ ] ", `[]`},
		{`{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{`{ "b" : { "d" : [ 1 , { "z" : 1 , "y" : 2 } ] , "c" : null } , "a" : true }`, `{"a":true,"b":{"c":null,"d":[1,{"y":2,"z":1}]}}`},
		{`0`, `0`},
		{`-1`, `-1`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`},
		{`"\/\u0041\u00e9\u20ac\ud83d\ude00"`, `"/Aé€😀"`},
		{`"\"\\\b\t\n\f\r\u0008\u000C\u0000\u001F\u007f"`, `"\"\\\b\t\n\f\r\b\f\u0000\u001f` + "\x7f\""},
		{`"<>&'` + "\u2028\u2029" + `"`, `"<>&'` + "\u2028\u2029" + `"`},
		// By code point, where UTF-16 would put U+1F600 before U+FFFD.
		{`{"\ud83d\ude00":1,"\ufffd":2}`, `{"` + "\ufffd" + `":2,"😀":1}`},
		// By the characters, not by their escapes.
		{`{"\\":1,"#":2,"\"":3,"a":4,"\u0001":5,"":6}`, `{"":6,"\u0001":5,"\"":3,"#":2,"\\":1,"a":4}`},
		{`{"a":1,"ab":2,"A":3}`, `{"A":3,"a":1,"ab":2}`},
		{strings.Repeat("[", maxNesting) + `[]` + strings.Repeat("]", maxNesting), strings.Repeat("[", maxNesting) + `[]` + strings.Repeat("]", maxNesting)},
	} {
		got, err := Canonical([]byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\n got %q, %v\nwant %q", c.in, got, err, c.want)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{``, "ends too early"},
		{`{"a":`, "a (byte 5): the JSON value ends too early"},
		{`{"a":[1,{"b":1.5}]}`, "a[1].b (byte 13): a number with a fraction"},
		{`{"a":1e3}`, "fraction or an exponent"},
		{`{"a":1E3}`, "fraction or an exponent"},
		{`-0`, "-0"},
		{`01`, "leading zero"},
		{`-01`, "leading zero"},
		{`-`, "minus sign"},
		{`+1`, "expected a JSON value"},
		{`NaN`, "expected a JSON value"},
		{`nul`, "expected a JSON value"},
		{`truex`, "follows the end"},
		{`{"a":1,"a":2}`, `"a" is there twice`},
		{`{"x":{"a":1,"b":0,"\u0061":2}}`, `x (byte 29): the key "a" is there twice`},
		{`{"a":1}{}`, "follows the end"},
		{`{"a":1,}`, "expected a key"},
		{`[1,]`, "expected a JSON value"},
		{`[1 2]`, "expected , or ]"},
		{`{"a" 1}`, `expected : after the key "a"`},
		{`{a:1}`, "expected a key"},
		{`{'a':1}`, "expected a key"},
		{`"a`, "no end"},
		{`"a\`, "no end"},
		{`"\x41"`, "unknown escape"},
		{`"\u12g4"`, "four hex digits"},
		{`"\ud800"`, "surrogate"},
		{`"\ude00\ud83d"`, "surrogate"},
		{`"\ud83d\u0041"`, "surrogate"},
		{"\"a\nb\"", "control character"},
		{"\"\xff\"", "byte 1: invalid UTF-8"},
		{"\"ab\xed\xa0\x80\"", "byte 3: invalid UTF-8"},
		{"\"\xc0\xaf\"", "invalid UTF-8"},
		{"\ufeff{}", "expected a JSON value"},
		{"{}\x00", "follows the end"},
		{`{}//`, "follows the end"},
		{strings.Repeat("[", maxNesting+2), "nested too deeply"},
		{strings.Repeat(`{"a":`, 1<<20), "nested too deeply"},
	} {
		got, err := Canonical([]byte(c.in))
		wantInvalid(t, c.in, err, c.want)
		if got != nil {
			t.Errorf("%.80q: an error and a result", c.in)
		}
	}
}

// wantInvalid checks that err is an InvalidError of one sentence that has want.
func wantInvalid(t *testing.T, what string, err error, want string) {
	t.Helper()
	var invalid *InvalidError
	switch {
	case err == nil:
		t.Errorf("%.200q is accepted, want an error with %q", what, want)
	case !errors.As(err, &invalid) || !errors.Is(err, syscall.EINVAL):
		t.Errorf("%.200q: %v is no InvalidError", what, err)
	case !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 600:
		t.Errorf("%.200q: %q, want one line with %q", what, err, want)
	}
}

// drawJSON draws a value of the kinds that are allowed.
func drawJSON(t *rapid.T, depth int) any {
	text := rapid.StringN(0, 12, -1)
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return strings.ToValidUTF8(text.Draw(t, "text"), "?")
	case 4:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "len"))
		for i := range list {
			list[i] = drawJSON(t, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 5).Draw(t, "members") {
		object[strings.ToValidUTF8(text.Draw(t, "key"), "?")] = drawJSON(t, depth-1)
	}
	return object
}

// Any encoding of a value has one canonical form, which decodes to the value.
func TestCanonicalProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := drawJSON(t, 4)
		plain, _ := json.Marshal(value)
		indented, _ := json.MarshalIndent(value, "", "\t")
		got, err := Canonical(plain)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range [][]byte{indented, got} {
			again, err := Canonical(other)
			if err != nil || !bytes.Equal(again, got) {
				t.Fatalf("%s gives %s, %v; not %s", other, again, err, got)
			}
		}
		var decoded any
		if err := json.Unmarshal(got, &decoded); err != nil {
			t.Fatal(err)
		}
		var want any
		json.Unmarshal(plain, &want)
		a, _ := json.Marshal(decoded)
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Fatalf("%s decodes to %s", got, a)
		}
		checkRaw(t, got)
	})
}

// checkRaw takes a canonical value apart and puts it together again.
func checkRaw(t interface{ Fatalf(string, ...any) }, canonical []byte) {
	if n := valueLen(canonical); n != len(canonical) {
		t.Fatalf("%s: found only %d bytes", canonical, n)
	}
	if s, ok := rawString(canonical); ok && !bytes.Equal(appendString(nil, s), canonical) {
		t.Fatalf("%s: read as %q", canonical, s)
	}
	if o, ok := parseRawObject(canonical); ok {
		if again := o.appendTo(nil); !bytes.Equal(again, canonical) {
			t.Fatalf("%s: put together as %s", canonical, again)
		}
		if !slices.IsSortedFunc(o, func(a, b rawMember) int { return strings.Compare(a.key, b.key) }) {
			t.Fatalf("%s: not sorted", canonical)
		}
		for _, m := range o {
			checkRaw(t, m.value)
		}
	}
	eachElement(canonical, func(_ int, element []byte) error {
		checkRaw(t, element)
		return nil
	})
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":[1,-2,"\u00e9\ud83d\ude00"],"a":{}}`, `{"a":1,"\u0061":1}`, `[1.5]`, `"\ud800"`, "[[[[", `{"":"","\\":null}`, ` true `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Canonical(b)
		if err != nil {
			return
		}
		if !json.Valid(b) || !json.Valid(got) || !utf8.Valid(got) || len(got) > len(b) {
			t.Fatalf("%q gives %q", b, got)
		}
		again, err := Canonical(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q gives %q, and that %q, %v", b, got, again, err)
		}
		checkRaw(t, got)
	})
}
