// Package sim plays the model of WORKLOAD.md against a retention policy, in
// memory: conversations that look up, restore and publish, over a RAM tier
// with watermarks and a disk tier without a bound. It counts in pages.
package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Shape is what a conversation's turns look like.
type Shape string

// The shapes of WORKLOAD.md.
const (
	Agent    Shape = "agent"
	Side     Shape = "side"
	Fork     Shape = "fork"
	ChatSide Shape = "chat+side"
	// Mixed is not in WORKLOAD.md: the conversations have these shapes in turn.
	Mixed Shape = "mixed"
)

// Model's numbers, from WORKLOAD.md.
const (
	PageTokens    = 10
	OwnPages      = 9
	PagesPerMiB   = 16 // of 64 KiB
	contextTokens = 240
	turnTokens    = 5
)

// Script is a workload: a shape and the order of the visits, one turn each.
type Script struct {
	Shape  Shape
	Visits []int // conversation numbers
}

// Order names an order of visits.
type Order string

// RoundRobin is WORKLOAD.md's order; the others are there to be fair.
const (
	RoundRobin Order = "loop"
	Random     Order = "random"
	Bursty     Order = "bursty"
	Zipf       Order = "zipf"
	Changing   Order = "changing loop"
	Shuffled   Order = "shuffled loop"
	Phases     Order = "phases"
)

// Orders lists the orders other than WORKLOAD.md's.
var Orders = []Order{Random, Bursty, Zipf, Changing, Shuffled, Phases}

// Visits makes an order of turns over some conversations from a seed.
func Visits(o Order, conversations, turns int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 0x636b7074))
	n := conversations * turns
	out := make([]int, 0, n+turns)
	pick := func() int { return rng.IntN(conversations) }
	switch o {
	case RoundRobin:
		for i := range n {
			out = append(out, i%conversations)
		}
	case Random:
		for range n {
			out = append(out, pick())
		}
	case Bursty: // runs over two or three conversations at a time
		hot := []int{pick(), pick(), pick()}
		for range n {
			if rng.IntN(8) == 0 {
				hot[rng.IntN(len(hot))] = pick()
			}
			out = append(out, hot[rng.IntN(len(hot))])
		}
	case Zipf:
		z := rand.NewZipf(rng, 1.2, 2, uint64(conversations-1))
		for range n {
			out = append(out, int(z.Uint64()))
		}
	case Changing: // the loop has another length every few rounds
		for len(out) < n {
			length := conversations/3 + rng.IntN(conversations-conversations/3) + 1
			first := pick()
			for range 3 * length {
				out = append(out, (first+len(out)%length)%conversations)
			}
		}
		out = out[:n]
	case Shuffled: // each round in an order of its own
		for range turns {
			out = append(out, rng.Perm(conversations)...)
		}
	case Phases: // loop, chance, then a burst, to see what it unlearns
		third := n / 3
		out = append(out, Visits(RoundRobin, conversations, turns, seed)[:third]...)
		out = append(out, Visits(Random, conversations, turns, seed+1)[:third]...)
		out = append(out, Visits(Bursty, conversations, turns, seed+2)[:n-2*third]...)
	default:
		panic(fmt.Sprintf("no order %q", o))
	}
	return out
}

// conversation is the client's side: the tokens so far.
type conversation struct {
	shape  Shape
	tokens []uint32
	turn   int
}

// Player carries out what the conversations do: the model's Store, or a mount.
type Player interface {
	// Restore looks the longest published prefix up and reads it. counted: it
	// is a continuation.
	Restore(tokens []uint32, counted bool)
	// Publish publishes a generation: a prompt, or the response to one.
	Publish(tokens []uint32, prompt bool, request uint64)
}

// client plays turns.
type client struct {
	store         Player
	next          uint32 // tokens are never the same twice, except by history
	requests      uint64
	conversations map[int]*conversation
}

func (c *client) fresh(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		c.next++
		out[i] = c.next
	}
	return out
}

// visit plays the next turn of a conversation, and what comes with it.
func (c *client) visit(number int, shape Shape) {
	v := c.conversations[number]
	if v == nil {
		if shape == Mixed {
			shape = []Shape{Agent, Side, Fork, ChatSide}[number%4]
		}
		v = &conversation{shape: shape, tokens: c.fresh(contextTokens)}
		c.conversations[number] = v
	} else {
		v.tokens = append(v.tokens, c.fresh(turnTokens)...)
	}
	prompt := slices.Clone(v.tokens)
	v.tokens = c.request(v.tokens, v.turn > 0)
	if v.shape == ChatSide {
		v.tokens = append(prompt, c.fresh(turnTokens)...)
	}
	switch {
	case (v.shape == Side || v.shape == ChatSide) && v.turn%2 == 1:
		c.request(append(slices.Clone(v.tokens), c.fresh(turnTokens)...), false)
	case v.shape == Fork && v.turn%4 == 3:
		sub := slices.Clone(v.tokens)
		for range 3 {
			sub = c.request(append(sub, c.fresh(turnTokens)...), false)
		}
	}
	v.turn++
}

// request looks a prompt up, restores, publishes prompt and response, and lets
// eviction come to rest. It returns the tokens with the answer.
func (c *client) request(prompt []uint32, counted bool) []uint32 {
	c.requests++
	c.store.Restore(prompt, counted)
	c.store.Publish(prompt, true, c.requests)
	answer := append(slices.Clone(prompt), c.fresh(turnTokens)...)
	c.store.Publish(answer, false, c.requests)
	return answer
}

// Run plays a script over a RAM tier of so many MiB.
func Run(s Script, ramMiB int, policy Policy) Result {
	store := NewStore(ramMiB*PagesPerMiB, policy)
	Play(s, store, nil)
	store.Flush()
	return store.Result
}

// Play plays a script. stop, if not nil, is asked before each visit.
func Play(s Script, p Player, stop func() bool) {
	c := &client{store: p, conversations: make(map[int]*conversation)}
	for _, number := range s.Visits {
		if stop != nil && stop() {
			return
		}
		c.visit(number, s.Shape)
	}
}
