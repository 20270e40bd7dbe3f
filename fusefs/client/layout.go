package client

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// PagePath returns where a page is, relative to its generation or staging.
func PagePath(rank int, group string, position int) string {
	return fmt.Sprintf("rank-%d/%s/%08d", rank, group, position)
}

// RankOf returns the rank that a page path belongs to, or -1.
func RankOf(path string) int {
	first, _, _ := strings.Cut(path, "/")
	digits, found := strings.CutPrefix(first, "rank-")
	rank, err := strconv.Atoi(digits)
	if !found || err != nil || rank < 0 {
		return -1
	}
	return rank
}

// ModelDir returns the directory name of a model: org/name is org--name.
func ModelDir(model string) string {
	return strings.ReplaceAll(model, "/", "--")
}

// EncodeTokens returns tokens as the filesystem wants them: unsigned 32-bit
// little-endian.
func EncodeTokens(tokens []uint32) []byte {
	return appendTokens(make([]byte, 0, 4*len(tokens)), tokens)
}

func appendTokens(b []byte, tokens []uint32) []byte {
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	return b
}

// DecodeTokens is the reverse of EncodeTokens.
func DecodeTokens(b []byte) ([]uint32, error) {
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("tokens: %d bytes are not a whole number of 32-bit tokens", len(b))
	}
	tokens := make([]uint32, len(b)/4)
	for i := range tokens {
		tokens[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return tokens, nil
}
