package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"ckptfs/fusefs/client"
	"ckptfs/index"
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

// lookUp is client.Find, and adds the reason in words if the request is refused: the errno of a write can't tell it.
func lookUp(ctx context.Context, identityDir string, tokens []uint32, options client.FindOptions) (*client.Lease, error) {
	lease, err := client.Find(ctx, identityDir, tokens, options)
	if errors.Is(err, syscall.EINVAL) {
		line := fmt.Sprintf(`{"num_tokens":%d`, len(tokens))
		if options.MaxTokens != 0 {
			line += fmt.Sprintf(`,"max_tokens":%d`, options.MaxTokens)
		}
		if _, _, reason := index.ParseFindRequest(append([]byte(line+"}\n"), client.EncodeTokens(tokens)...)); reason != nil {
			err = fmt.Errorf("%w: %w", err, reason)
		}
	}
	return lease, refusedIfInvalid(err)
}
