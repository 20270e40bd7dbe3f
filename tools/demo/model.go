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

	// nextTokens is by how much a request of the next turn is longer.
	nextTokens = 258
)

// turn is a point in a conversation at which a generation is stored.
type turn struct {
	Conversation int    `json:"conversation"`
	Kind         string `json:"kind"`
	NumTokens    int    `json:"num_tokens"`
}

// The turns of the first half. They end within a page and within a hash unit.
var (
	prompt   = turn{0, client.KindPrompt, 40239}
	response = turn{0, client.KindResponse, 41502}
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

// tokens returns the first n tokens of a conversation.
func tokens(conversation, n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(mix(uint64(conversation)<<32+uint64(i)) % 151936)
	}
	return all
}

// next is the request that continues t.
func (t turn) next() turn {
	return turn{t.Conversation, t.Kind, t.NumTokens + nextTokens}
}

// manifest describes the generation.
func (t turn) manifest(pageBytes int64) client.Manifest {
	last := (t.NumTokens - 1) / pageTokens
	attention := make([]int, last+1)
	for i := range attention {
		attention[i] = i
	}
	return client.Manifest{
		SchemaVersion: 2, Kind: t.Kind, Request: fmt.Sprintf("req-%d", t.Conversation), NumTokens: t.NumTokens,
		PageGroups: []client.PageGroup{
			{Name: "target.attention.0", Role: client.RoleAttention, PageTokens: pageTokens, PageBytes: pageBytes, Positions: attention},
			{Name: "target.recurrent.0", Role: client.RoleRecurrent, PageBytes: pageBytes, Positions: []int{last}},
			{Name: "target-draft-auxiliary", Role: client.RoleAuxiliary, PageBytes: pageBytes, Positions: []int{0}},
		},
	}
}

// pageNames returns, for every page of a rank by its path, what decides its
// bytes: as in the contract, the boundary at which it was computed.
func (t turn) pageNames(rank int) map[string]pageName {
	names := make(map[string]pageName)
	for _, g := range t.manifest(0).PageGroups {
		for _, position := range g.Positions {
			end := t.NumTokens
			if g.Role == client.RoleAttention {
				end = min((position+1)*g.PageTokens, t.NumTokens)
			}
			names[client.PagePath(rank, g.Name, position)] = pageName{t.Conversation, g.Name, rank, position, end}
		}
	}
	return names
}

// pageCount is how many pages all ranks have.
func (t turn) pageCount() int {
	n := 0
	for _, g := range t.manifest(0).PageGroups {
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
