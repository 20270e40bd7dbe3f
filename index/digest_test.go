package index

import (
	"strings"
	"testing"

	"ckptfs/pages"
)

func TestParseDigest(t *testing.T) {
	d := Digest{0x0a, 0xbc, 31: 0xff}
	if got, err := ParseDigest(d.Hex()); err != nil || got != d {
		t.Errorf("%s is read as %s, %v", d, got, err)
	}
	if d.Short() != d.String()[:40] {
		t.Errorf("%s is cut to %s", d, d.Short())
	}
	key := pages.Key(d)
	if got, err := pages.ParseKey(key.String()); err != nil || got != key || key.String() != d.Hex() {
		t.Errorf("%s is read as %s, %v", key, got, err)
	}
	for _, s := range []string{"", d.Short(), d.Hex() + "0", strings.ToUpper(d.Hex()), d.Hex()[1:] + "g", " " + d.Hex()[1:]} {
		if _, err := ParseDigest(s); err == nil {
			t.Errorf("%q is taken for a digest", s)
		}
		if _, err := pages.ParseKey(s); err == nil {
			t.Errorf("%q is taken for a key", s)
		}
	}
}

// Messages stay on one line and short, whatever is quoted.
func TestQuoteInMessages(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, c := range []struct{ got, want string }{
		{quoteKey("page_groups"), "page_groups"},
		{quoteKey(""), `""`},
		{quoteKey("a\nb"), `"a\nb"`},
		{quoteCut(long), `"` + strings.Repeat("é", 32) + `"...`},
		{quoteCut("x" + long), `"x` + strings.Repeat("é", 31) + `"...`},
		{cutValue([]byte("[1]")), "[1]"},
		{cutValue([]byte(`"` + long + `"`)), `"` + strings.Repeat("é", 39) + "..."},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
