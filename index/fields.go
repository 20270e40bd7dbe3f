package index

import (
	"strings"
)

// fields reads the known fields of one object and says what is wrong with
// them. place is the object's own place, empty for the whole document.
type fields struct {
	place  string
	object rawObject
}

// newFields is for a canonical value that must be an object.
func newFields(place string, v []byte) (fields, error) {
	o, ok := parseRawObject(v)
	if !ok {
		if place == "" {
			return fields{}, invalidf("the document must be a JSON object, not %s", cutValue(v))
		}
		return fields{}, invalidf("%s must be an object, not %s", place, cutValue(v))
	}
	return fields{place: place, object: o}, nil
}

// at returns the place of a field.
func (f fields) at(key string) string {
	if f.place == "" {
		return key
	}
	return f.place + "." + key
}

func (f fields) has(key string) bool {
	_, ok := f.object.get(key)
	return ok
}

// raw returns a field that must be there.
func (f fields) raw(key string) ([]byte, error) {
	v, ok := f.object.get(key)
	if !ok {
		return nil, invalidf("%s is missing", f.at(key))
	}
	return v, nil
}

// integer returns a field that must be an integer from low to high.
func (f fields) integer(key string, low, high int64) (int64, error) {
	v, err := f.raw(key)
	if err != nil {
		return 0, err
	}
	n, ok := rawInt(v)
	if !ok || n < low || n > high {
		return 0, invalidf("%s must be an integer from %d to %d, not %s", f.at(key), low, high, cutValue(v))
	}
	return n, nil
}

// text returns a field that must be a string of low to high bytes.
func (f fields) text(key string, low, high int) (string, error) {
	v, err := f.raw(key)
	if err != nil {
		return "", err
	}
	s, ok := rawString(v)
	if !ok {
		return "", invalidf("%s must be a string, not %s", f.at(key), cutValue(v))
	}
	if len(s) < low || len(s) > high {
		return "", invalidf("%s must have %d to %d bytes, not %d", f.at(key), low, high, len(s))
	}
	return s, nil
}

// oneOf returns a field that must be one of a few words.
func (f fields) oneOf(key string, words ...string) (string, error) {
	v, err := f.raw(key)
	if err != nil {
		return "", err
	}
	s, _ := rawString(v)
	for _, w := range words {
		if s == w {
			return s, nil
		}
	}
	return "", invalidf("%s must be one of %s, not %s", f.at(key), strings.Join(words, ", "), cutValue(v))
}

// nested returns a field that must be an object.
func (f fields) nested(key string) (fields, error) {
	v, err := f.raw(key)
	if err != nil {
		return fields{}, err
	}
	return newFields(f.at(key), v)
}

// digest returns a field that must be a digest as Hex writes it.
func (f fields) digest(key string) (Digest, error) {
	v, err := f.raw(key)
	if err != nil {
		return Digest{}, err
	}
	d, ok := rawDigest(v)
	if !ok {
		return Digest{}, invalidf("%s must be 64 lower-case hex digits, not %s", f.at(key), cutValue(v))
	}
	return d, nil
}

// each calls f for each element of a field that must be an array.
func (f fields) each(key string, visit func(i int, element []byte) error) error {
	v, err := f.raw(key)
	if err != nil {
		return err
	}
	isArray, err := eachElement(v, visit)
	if !isArray {
		return invalidf("%s must be an array, not %s", f.at(key), cutValue(v))
	}
	return err
}

func rawDigest(v []byte) (Digest, bool) {
	s, _ := rawString(v)
	d, err := ParseDigest(s)
	return d, err == nil
}

// cutValue returns canonical JSON for a message, cut if it is long.
func cutValue(v []byte) string {
	if len(v) <= 80 {
		return string(v)
	}
	return strings.ToValidUTF8(string(v[:80]), "") + "..."
}
