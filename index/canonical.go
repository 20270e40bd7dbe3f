package index

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNesting bounds the arrays and objects inside one another, and with it
// the stack that a hostile document can use.
const maxNesting = 64

// Canonical parses one JSON text strictly and returns its canonical form:
// UTF-8, no white space, keys sorted by Unicode code point (which is the
// order of their UTF-8 bytes, not RFC 8785's UTF-16 order), strings with the
// fewest escapes, integers as written. The result is never longer than doc
// and does not alias it.
//
// It refuses, with an InvalidError: a number with a fraction or an exponent,
// "-0" (an integer has one spelling), a duplicate key (compared after
// unescaping), invalid UTF-8, an escaped surrogate without its pair, nesting
// deeper than 64, anything after the value. Integers may have any number of
// digits. Time and memory are linear in len(doc), but for the sorting of keys
// that come unsorted.
func Canonical(doc []byte) ([]byte, error) {
	if at := invalidUTF8(doc); at >= 0 {
		return nil, invalidf("byte %d: invalid UTF-8", at)
	}
	c := canonicalizer{in: doc, out: make([]byte, 0, len(doc))}
	if err := c.value(); err != nil {
		return nil, err
	}
	if c.space(); c.pos < len(c.in) {
		return nil, invalidf("byte %d: something follows the end of the JSON value", c.pos)
	}
	return c.out, nil
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	at := 0
	for {
		r, size := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && size <= 1 {
			return at
		}
		at += size
	}
}

// canonicalizer reads in from pos and appends the canonical form to out.
type canonicalizer struct {
	in      []byte
	pos     int
	out     []byte
	scratch []byte     // for putting an object's members in order
	path    []pathStep // where pos is, for messages
}

// pathStep is a key of an object or an index of an array.
type pathStep struct {
	key   string
	index int // -1: a key
}

// fail returns an InvalidError for the byte at pos. It never quotes the
// input: a lookup's tokens are private.
func (c *canonicalizer) fail(reason string) error { return c.failAt(c.pos, reason) }

func (c *canonicalizer) failAt(at int, reason string) error {
	if len(c.path) == 0 {
		return invalidf("byte %d: %s", at, reason)
	}
	return invalidf("%s (byte %d): %s", c.place(), at, reason)
}

// place writes the path as page_groups[3].positions.
func (c *canonicalizer) place() string {
	var b strings.Builder
	for _, s := range c.path {
		if s.index >= 0 {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(quoteKey(s.key))
	}
	return b.String()
}

// quoteKey returns a key as it can stand in a message: plain if it is a
// plain word, else quoted and cut.
func quoteKey(key string) string {
	plain := len(key) > 0 && len(key) <= 64
	for i := range len(key) {
		ch := key[i]
		plain = plain && (ch == '_' || ch >= '0' && ch <= '9' || ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z')
	}
	if plain {
		return key
	}
	return quoteCut(key)
}

// quoteCut quotes at most the first 64 bytes of s, on one line.
func quoteCut(s string) string {
	if len(s) <= 64 {
		return strconv.Quote(s)
	}
	cut := 64
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}

func (c *canonicalizer) space() {
	for c.pos < len(c.in) {
		switch c.in[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end (a NUL byte
// is no JSON either).
func (c *canonicalizer) peek() byte {
	c.space()
	if c.pos == len(c.in) {
		return 0
	}
	return c.in[c.pos]
}

func (c *canonicalizer) value() error {
	switch ch := c.peek(); {
	case ch == '{':
		return c.object()
	case ch == '[':
		return c.array()
	case ch == '"':
		return c.string()
	case ch == '-' || ch >= '0' && ch <= '9':
		return c.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if len(c.in)-c.pos >= len(word) && string(c.in[c.pos:c.pos+len(word)]) == word {
			c.pos += len(word)
			c.out = append(c.out, word...)
			return nil
		}
	}
	if c.pos == len(c.in) {
		return c.fail("the JSON value ends too early")
	}
	return c.fail("expected a JSON value")
}

func (c *canonicalizer) push(s pathStep) error {
	if len(c.path) == maxNesting {
		return c.fail("nested too deeply (more than " + strconv.Itoa(maxNesting) + " levels)")
	}
	c.path = append(c.path, s)
	return nil
}

func (c *canonicalizer) pop() { c.path = c.path[:len(c.path)-1] }

func (c *canonicalizer) array() error {
	c.pos++
	c.out = append(c.out, '[')
	if c.peek() == ']' {
		c.pos++
		c.out = append(c.out, ']')
		return nil
	}
	if err := c.push(pathStep{}); err != nil {
		return err
	}
	for {
		if err := c.value(); err != nil {
			return err
		}
		ch := c.peek()
		switch ch {
		case ',':
			c.path[len(c.path)-1].index++
		case ']':
			c.pop()
		default:
			return c.fail("expected , or ] in an array")
		}
		c.pos++
		c.out = append(c.out, ch)
		if ch == ']' {
			return nil
		}
	}
}

// objectMember is a member whose canonical text is out[start:end].
type objectMember struct {
	key        string
	start, end int
}

func (c *canonicalizer) object() error {
	c.pos++
	c.out = append(c.out, '{')
	if c.peek() == '}' {
		c.pos++
		c.out = append(c.out, '}')
		return nil
	}
	var members []objectMember
	sorted := true
	for {
		m, err := c.member()
		if err != nil {
			return err
		}
		sorted = sorted && (len(members) == 0 || members[len(members)-1].key < m.key)
		members = append(members, m)
		ch := c.peek()
		if ch != ',' && ch != '}' {
			return c.fail("expected , or } in an object")
		}
		c.pos++
		c.out = append(c.out, ch)
		if ch == '}' {
			break
		}
	}
	if sorted {
		return nil
	}
	return c.sortMembers(members)
}

// member reads one "key":value.
func (c *canonicalizer) member() (objectMember, error) {
	if c.peek() != '"' {
		return objectMember{}, c.fail("expected a key in double quotes")
	}
	start := len(c.out)
	if err := c.string(); err != nil {
		return objectMember{}, err
	}
	m := objectMember{key: decodeString(c.out[start:]), start: start}
	if c.peek() != ':' {
		return objectMember{}, c.fail("expected : after the key " + quoteCut(m.key))
	}
	c.pos++
	c.out = append(c.out, ':')
	if err := c.push(pathStep{key: m.key, index: -1}); err != nil {
		return objectMember{}, err
	}
	if err := c.value(); err != nil {
		return objectMember{}, err
	}
	c.pop()
	m.end = len(c.out)
	return m, nil
}

// sortMembers puts the members of the object that out ends with in order.
func (c *canonicalizer) sortMembers(members []objectMember) error {
	first, last := members[0].start, members[len(members)-1].end
	slices.SortFunc(members, func(a, b objectMember) int { return strings.Compare(a.key, b.key) })
	c.scratch = c.scratch[:0]
	for i, m := range members {
		if i > 0 {
			if members[i-1].key == m.key {
				return c.fail("the key " + quoteCut(m.key) + " is there twice")
			}
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, c.out[m.start:m.end]...)
	}
	copy(c.out[first:last], c.scratch)
	return nil
}

// number reads an integer of any size.
func (c *canonicalizer) number() error {
	start := c.pos
	if c.in[c.pos] == '-' {
		c.pos++
	}
	digits := c.pos
	for c.pos < len(c.in) && c.in[c.pos] >= '0' && c.in[c.pos] <= '9' {
		c.pos++
	}
	switch {
	case c.pos == digits:
		return c.failAt(start, "a minus sign without a number")
	case c.in[digits] == '0' && c.pos > digits+1:
		return c.failAt(start, "a number with a leading zero")
	case c.in[digits] == '0' && digits > start:
		return c.failAt(start, "-0 is not an integer, write 0")
	}
	if c.pos < len(c.in) {
		if ch := c.in[c.pos]; ch == '.' || ch == 'e' || ch == 'E' {
			return c.failAt(start, "a number with a fraction or an exponent, only integers are allowed")
		}
	}
	c.out = append(c.out, c.in[start:c.pos]...)
	return nil
}
