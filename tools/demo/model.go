package main

import (
	"encoding/json"
	"fmt"

	"ckptfs/fusefs/client"
)

const (
	modelName  = "example/hybrid-27b"
	worldSize  = 4
	pageTokens = 1024

	promptTokens   = 40239 // ends within a page and within a hash unit
	responseTokens = 41502
	requestTokens  = 41760 // the next turn
)

// identityDocument authenticates a model and layout like a real engine's.
func identityDocument(pageBytes int64) []byte {
	return mustMarshal(map[string]any{
		"schema_version":  1,
		"target_revision": "git:3b1f0c9d2e4a5b6c7d8e9f00112233445566778a",
		"draft_revision":  "git:77aa0c9d2e4a5b6c7d8e9f00112233445566778b",
		"source_revision": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"cache_salt":      "demo",
		"layout":          map[string]any{"dtype": "bf16", "page_bytes": pageBytes, "page_tokens": pageTokens},
		"parallel":        map[string]any{"world_size": worldSize},
	})
}

// tokens returns the first n tokens of the one conversation of the demo.
func tokens(n int) []uint32 {
	t := make([]uint32, n)
	for i := range t {
		t[i] = uint32(mix(uint64(i)) % 151936)
	}
	return t
}

// manifest describes the conversation's generation at n tokens.
func manifest(kind string, n int, pageBytes int64) client.Manifest {
	last := (n - 1) / pageTokens
	attention := make([]int, last+1)
	for i := range attention {
		attention[i] = i
	}
	return client.Manifest{
		SchemaVersion: 2, Kind: kind, Request: "req-7f3a", NumTokens: n,
		PageGroups: []client.PageGroup{
			{Name: "target.attention.0", Role: client.RoleAttention, PageTokens: pageTokens, PageBytes: pageBytes, Positions: attention},
			{Name: "target.recurrent.0", Role: client.RoleRecurrent, PageBytes: pageBytes, Positions: []int{last}},
			{Name: "target-draft-auxiliary", Role: client.RoleAuxiliary, PageBytes: pageBytes, Positions: []int{0}},
		},
	}
}

// pageNames returns, for every page of a rank by its path, what decides its
// bytes: as in the contract, the boundary at which it was computed.
func pageNames(m client.Manifest, rank int) map[string]pageName {
	names := make(map[string]pageName)
	for _, g := range m.PageGroups {
		for _, position := range g.Positions {
			end := m.NumTokens
			if g.Role == client.RoleAttention {
				end = min((position+1)*g.PageTokens, m.NumTokens)
			}
			names[client.PagePath(rank, g.Name, position)] = pageName{g.Name, rank, position, end}
		}
	}
	return names
}

// pageCount is how many pages all ranks have.
func pageCount(m client.Manifest) int {
	n := 0
	for _, g := range m.PageGroups {
		n += len(g.Positions)
	}
	return n * worldSize
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a document of the demo: %v", err)) // only literals come here
	}
	return b
}
