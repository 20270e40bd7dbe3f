package client

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// FindOptions narrow a lookup.
type FindOptions struct {
	// MaxTokens, if positive, leaves out generations of more tokens: how a
	// client steps down to a shorter one after its own failure.
	MaxTokens int
	// Media lists the media of the request, in order.
	Media []Media
	// Explain asks only: the reply tells what has been lost too, and nothing is
	// leased, refreshed or brought to RAM.
	Explain bool
}

// Reply is the answer to a lookup.
type Reply struct {
	// Generation is the name of the longest published prefix, or empty.
	Generation     string `json:"generation"`
	NumTokens      int    `json:"num_tokens"`
	Kind           string `json:"kind"`
	DraftPrefixLen int    `json:"draft_prefix_len"`
	WorldSize      int    `json:"world_size"`
	Pages          struct {
		Total int `json:"total"`
		RAM   int `json:"ram"`
		Disk  int `json:"disk"`
	} `json:"pages"`
	// Reason says, without a hit, what became of the best lead.
	Reason string `json:"reason"`
	// Lost is, if it was asked for, a retired generation that would have been a
	// longer answer.
	Lost *Lost `json:"lost"`
}

// Lost is a generation that is not published any more.
type Lost struct {
	Generation string    `json:"generation"` // empty if its name is not remembered
	NumTokens  int       `json:"num_tokens"`
	Retired    time.Time `json:"retired"`
	Reason     string    `json:"reason"`
}

// Lease is an open lookup handle. Until it is closed or used again, nothing of
// the generation in its Reply is evicted or dropped.
type Lease struct {
	// Reply is the answer to the last lookup.
	Reply Reply
	// Raw is that answer as the filesystem wrote it.
	Raw []byte

	identityDir string
	file        *os.File
}

// Find looks for the published generation with the most tokens that is an exact
// prefix of tokens. The caller closes the lease, whether there is a hit or not.
func Find(ctx context.Context, identityDir string, tokens []uint32, options FindOptions) (*Lease, error) {
	file, err := open(filepath.Join(identityDir, ".find"), os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("find: %w", err)
	}
	l := &Lease{identityDir: identityDir, file: file}
	if err := l.Again(ctx, tokens, options); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Again looks up anew with the same handle: the lease moves to the new answer.
// After an error it holds nothing.
func (l *Lease) Again(ctx context.Context, tokens []uint32, options FindOptions) error {
	l.Reply, l.Raw = Reply{}, nil
	request, err := encodeRequest(tokens, options)
	if err != nil {
		return fmt.Errorf("find: %w", err)
	}
	raw, err := converse(ctx, l.file, request)
	if err != nil {
		return fmt.Errorf("find in %s: %w", l.identityDir, err)
	}
	var reply Reply
	if err := json.Unmarshal(raw, &reply); err != nil {
		return fmt.Errorf("find in %s: the reply %.80q: %w", l.identityDir, raw, err)
	}
	l.Reply, l.Raw = reply, raw
	return nil
}

// encodeRequest builds a request as one buffer, so that it is one write.
func encodeRequest(tokens []uint32, options FindOptions) ([]byte, error) {
	head, err := json.Marshal(struct {
		NumTokens int     `json:"num_tokens"`
		MaxTokens int     `json:"max_tokens,omitempty"`
		Media     []Media `json:"media,omitempty"`
		Explain   bool    `json:"explain,omitempty"`
	}{len(tokens), options.MaxTokens, options.Media, options.Explain})
	if err != nil {
		return nil, err
	}
	request := make([]byte, 0, len(head)+1+4*len(tokens))
	return appendTokens(append(append(request, head...), '\n'), tokens), nil
}

// Hit reports whether the last lookup found a generation.
func (l *Lease) Hit() bool { return l.Reply.Generation != "" }

// Dir returns the path of the generation found.
func (l *Lease) Dir() string { return filepath.Join(l.identityDir, l.Reply.Generation) }

// Close ends the lease.
func (l *Lease) Close() error { return closeChecked(l.file) }
