package client

import (
	"encoding/json"
	"fmt"
	"iter"
)

// Kinds of generations and roles of page groups.
const (
	KindInstruction = "instruction"
	KindPrompt      = "prompt"
	KindResponse    = "response"

	RoleAttention = "attention"
	RoleRecurrent = "recurrent"
	RoleAuxiliary = "auxiliary"
)

// Manifest names the fields of a manifest.json that clients use. A manifest may
// have others, which the filesystem keeps: Stage takes the document as bytes.
type Manifest struct {
	SchemaVersion  int         `json:"schema_version"`
	Kind           string      `json:"kind"`
	Request        string      `json:"request"`
	Nonce          string      `json:"nonce,omitempty"`
	NumTokens      int         `json:"num_tokens"`
	DraftPrefixLen int         `json:"draft_prefix_len"`
	Media          []Media     `json:"media,omitempty"`
	PageGroups     []PageGroup `json:"page_groups"`

	// Publication adds these.
	Generation string `json:"generation,omitempty"`
	Identity   string `json:"identity,omitempty"`
	WorldSize  int    `json:"world_size,omitempty"`
}

// Media is an image or another medium that placeholder tokens stand for.
type Media struct {
	// At is the index of the token where the medium starts.
	At     int    `json:"at"`
	Digest string `json:"digest"`
}

// PageGroup is a set of pages of one size and role that every rank has.
type PageGroup struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// PageTokens is how many tokens an attention page covers.
	PageTokens int   `json:"page_tokens,omitempty"`
	PageBytes  int64 `json:"page_bytes"`
	Positions  []int `json:"positions"`
}

// Page is a page of a generation or staging.
type Page struct {
	// Path is relative to the generation or staging directory.
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// ParseManifest reads a manifest. It does not check what the filesystem checks.
func ParseManifest(document []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(document, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// Pages yields the pages of one rank in the manifest's order.
func (m Manifest) Pages(rank int) iter.Seq[Page] {
	return func(yield func(Page) bool) {
		for _, g := range m.PageGroups {
			for _, position := range g.Positions {
				if !yield(Page{Path: PagePath(rank, g.Name, position), Bytes: g.PageBytes}) {
					return
				}
			}
		}
	}
}
