package index

import (
	"bytes"
	"encoding/binary"
	"slices"
)

const (
	// MaxFindBytes bounds a lookup's request: MaxTokens tokens and their
	// line in either form, with room to spare.
	MaxFindBytes = 64 << 20
	// maxFindHeaderBytes bounds the line before binary tokens. It is parsed
	// again with every write of the tokens.
	maxFindHeaderBytes = 4 << 20
)

// FindRequest is a lookup's request.
type FindRequest struct {
	NumTokens int     // 1..MaxTokens
	MaxTokens int     // the most that a candidate may have; 0: no bound
	Media     []Media // increasing At, below NumTokens
	Explain   bool    // tell what was lost, and leave everything as it is
	Tokens    []byte  // unsigned 32-bit little-endian, each below 2^31
}

// ParseFindRequest reads a lookup's request from all that has been written so
// far: a JSON line with num_tokens and then so many binary tokens, or a JSON
// line with the tokens themselves, whose newline may be left out. complete is
// false if more must come. The error, an InvalidError that quotes no token,
// is final: more bytes don't help.
//
// In the first form, req.Tokens is part of b.
func ParseFindRequest(b []byte) (req *FindRequest, complete bool, err error) {
	line, rest, ended := bytes.Cut(b, []byte{'\n'})
	if !ended && !maybeWhole(line) {
		if len(line) > MaxFindBytes {
			return nil, false, invalidf("the request's first line has more than %d bytes", MaxFindBytes)
		}
		return nil, false, nil
	}
	if len(line) > MaxFindBytes {
		return nil, false, invalidf("the request's first line has more than %d bytes", MaxFindBytes)
	}
	f, err := parseFindLine(line)
	if err != nil {
		if !ended {
			return nil, false, nil // it may be a part that happens to end with a brace
		}
		return nil, false, err
	}
	if req, err = parseFindFields(f); err != nil {
		return nil, false, err
	}
	if f.has("tokens") {
		if len(rest) > 0 {
			return nil, false, invalidf("%d bytes follow the request's line, which has the tokens already", len(rest))
		}
		return req, true, nil
	}
	if len(line) > maxFindHeaderBytes {
		return nil, false, invalidf("the request's first line has %d bytes, more than %d", len(line), maxFindHeaderBytes)
	}
	switch want := req.NumTokens * tokenBytes; {
	case len(rest) < want:
		return nil, false, nil
	case len(rest) > want:
		return nil, false, invalidf("%d bytes follow the line, but num_tokens is %d, which makes %d", len(rest), req.NumTokens, want)
	}
	if err := checkTokens(rest); err != nil {
		return nil, false, err
	}
	req.Tokens = rest
	return req, true, nil
}

// maybeWhole reports whether a line without its newline can be a whole
// object. It only looks at the last byte: each write asks again.
func maybeWhole(line []byte) bool {
	line = bytes.TrimRight(line, " \t\r")
	return len(line) > 0 && line[len(line)-1] == '}'
}

func parseFindLine(line []byte) (fields, error) {
	canonical, err := Canonical(line)
	if err != nil {
		return fields{}, invalidf("the request's first line is not the JSON that is wanted: %s", err)
	}
	o, ok := parseRawObject(canonical)
	if !ok {
		return fields{}, invalidf(`the request must begin with a JSON object like {"num_tokens":2} or {"tokens":[1,2]}`)
	}
	return fields{object: o}, nil
}

// parseFindFields reads the fields of the line, the tokens included if they
// are in it.
func parseFindFields(f fields) (*FindRequest, error) {
	for _, m := range f.object {
		if !slices.Contains([]string{"num_tokens", "tokens", "max_tokens", "media", "explain"}, m.key) {
			return nil, invalidf("a lookup has no field %s: there are num_tokens or tokens, max_tokens, media and explain", quoteCut(m.key))
		}
	}
	req := &FindRequest{}
	switch hasCount, hasTokens := f.has("num_tokens"), f.has("tokens"); {
	case hasCount && hasTokens:
		return nil, invalidf("a lookup has either num_tokens, with binary tokens after the line, or tokens")
	case hasTokens:
		var err error
		if req.Tokens, err = parseFindTokens(f); err != nil {
			return nil, err
		}
		req.NumTokens = len(req.Tokens) / tokenBytes
	default:
		n, err := f.integer("num_tokens", 1, MaxTokens)
		if err != nil {
			return nil, err
		}
		req.NumTokens = int(n)
	}
	if f.has("max_tokens") {
		n, err := f.integer("max_tokens", 1, 1<<53)
		if err != nil {
			return nil, err
		}
		req.MaxTokens = int(n)
	}
	if v, _ := f.object.get("explain"); v != nil {
		if req.Explain = string(v) == "true"; !req.Explain && string(v) != "false" {
			return nil, invalidf("explain must be true or false, not %s", cutValue(v))
		}
	}
	var err error
	req.Media, err = parseMedia(f, req.NumTokens)
	return req, err
}

// parseFindTokens reads the tokens of the line as binary tokens.
func parseFindTokens(f fields) ([]byte, error) {
	v, _ := f.raw("tokens")
	tokens := make([]byte, 0, min(countCommas(v)+1, MaxTokens)*tokenBytes)
	err := f.each("tokens", func(i int, element []byte) error {
		if i == MaxTokens {
			return invalidf("tokens has more than %d tokens", MaxTokens)
		}
		n, ok := rawInt(element)
		if !ok || n < 0 || n >= 1<<31 {
			return invalidf("%s must be an integer from 0 to %d", f.element("tokens", i), 1<<31-1)
		}
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(n))
		return nil
	})
	if err == nil && len(tokens) == 0 {
		return nil, invalidf("tokens must have at least one token")
	}
	return tokens, err
}
