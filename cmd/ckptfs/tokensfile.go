package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"ckptfs/fusefs/client"
)

// readTokensFile reads unsigned 32-bit little-endian tokens.
func readTokensFile(path string) ([]uint32, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tokens, err := client.DecodeTokens(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tokens, nil
}

// readTokensFlag reads what --tokens names: a file of tokens as above, a .json file with an array of numbers, or
// "-", the same two on standard input, where an array is known by its bracket.
func readTokensFlag(path string, in io.Reader) ([]uint32, error) {
	if path == "-" {
		content, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("tokens on standard input: %w", err)
		}
		if strings.HasPrefix(strings.TrimSpace(string(content)), "[") && json.Valid(content) {
			return parseTokens(path, content)
		}
		return client.DecodeTokens(content)
	}
	if !strings.HasSuffix(path, ".json") {
		return readTokensFile(path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseTokens(path, content)
}

func parseTokens(path string, content []byte) ([]uint32, error) {
	var tokens []uint32
	if err := json.Unmarshal(content, &tokens); err != nil {
		return nil, fmt.Errorf("%s is no array of tokens: %w", path, err)
	}
	return tokens, nil
}
