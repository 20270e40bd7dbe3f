package main

import (
	"fmt"

	"ckptfs/fusefs/client"
)

// A store for the rows about scale is filled with conversations of growing
// length. Each turn is a generation of 64 pages: every one of 4 ranks has the
// last 14 attention pages, a recurrent and an auxiliary one. A turn is four
// fifths of a page long, so about 15 of its 64 pages are new, and 65,536
// generations have a million distinct pages.
//
// Conversations are of three kinds, so that there are generations from 900 to
// 200,000 tokens.

// shape is a kind of conversation.
type shape struct {
	pageTokens int
	turns      int
}

var shapes = []shape{
	{64, 40},    // 896 to 2,900 tokens
	{256, 180},  // 3,584 to 40,200
	{1024, 230}, // 14,336 to 201,900
}

const (
	windowPages = 14
	shortShape  = 0
	middleShape = 1
	longShape   = 2
)

// turn names a generation of a store: the n-th in the order of publication.
type turn struct {
	conversation int
	shape        shape
	number       int // within its conversation
}

// turns gives the first n generations of a store.
func turns(n int) []turn {
	ts := make([]turn, 0, n)
	for c := 0; len(ts) < n; c++ {
		s := shapes[(c+longShape)%len(shapes)] // a long one first, so that every store has each kind
		for k := 0; k < s.turns && len(ts) < n; k++ {
			ts = append(ts, turn{c, s, k})
		}
	}
	return ts
}

// seed is that of a conversation's tokens.
func conversationSeed(c int) int64 { return int64(1000 + c) }

func (s shape) tokensAt(turn int) int { return windowPages*s.pageTokens + turn*s.pageTokens*4/5 }

// manifest is that of the turn.
func (t turn) manifest() client.Manifest {
	n := t.shape.tokensAt(t.number)
	last := (n - 1) / t.shape.pageTokens
	positions := count(max(0, last-windowPages+1), min(windowPages, last+1))
	kind := client.KindPrompt
	if t.number%2 == 1 {
		kind = client.KindResponse
	}
	m := hybridManifest(conversationSeed(t.conversation), n, kind, positions, 1, tinyPage)
	m.PageGroups[0].PageTokens = t.shape.pageTokens
	m.Request = fmt.Sprintf("conversation-%d-%d", t.conversation, t.number/2)
	return m
}

// lookup is a request and where its hit is.
type lookup struct {
	name      string
	seed      int64
	numTokens int
	diverges  int // the tokens from here on are another conversation's; 0: none
	hit       bool
}

// lookups are those of the scale table, for a request length. A hit near the
// end is a generation just below the request's length; one near the start is
// all that is left of a request that soon goes another way.
func lookups(numTokens int) []lookup {
	c := longShape
	first := shapes[longShape].tokensAt(0)
	switch {
	case numTokens <= 2_000:
		c, first = shortShape, shapes[shortShape].tokensAt(0)
	case numTokens <= 40_000:
		c, first = middleShape, shapes[middleShape].tokensAt(0)
	}
	// The conversation of this kind that comes first in every store.
	conversation := (c - longShape + len(shapes)) % len(shapes)
	seed := conversationSeed(conversation)
	return []lookup{
		{"hit near the end", seed, numTokens, 0, true},
		{"hit near the start", seed, numTokens, first + first/4, true},
		{"miss", -7, numTokens, 0, false},
	}
}
