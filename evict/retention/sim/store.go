package sim

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"ckptfs/evict/retention"
)

// Policy is what the store asks; see [retention.Policy].
type Policy = retention.Policy

// Watermarks in hundredths of the RAM tier, as the reference has them.
const (
	highWatermark = 80
	lowWatermark  = 64
)

// Result counts a run, in pages.
type Result struct {
	Written, Flushed int
	Failed           int // restores that missed a page after the lookup
	Restored         int // continuations restored from the very one they extend
	Continuations    int
	Retired          int
	ReadBack         int // pages restored from disk
	ReadRAM          int // pages restored from RAM
	Restores, AtOnce int // restores of all kinds; those that read nothing from disk
}

// MiB converts pages.
func MiB(pages int) float64 { return float64(pages) / PagesPerMiB }

type page struct {
	ram, disk bool
	own       bool
	links     int // generations that have it
	current   int // of these, the current ones
	home      *home
	index     int // place in the home's list
}

// home lists the pages that have the same home; see [retention.Policy].
type home struct {
	id    retention.ID
	pages []*page
}

type generation struct {
	retention.Member
	key        string
	parent     retention.ID
	pages      []*page
	superseded bool
	retired    bool
}

// Store is the store of the model: an index with lookup, and a RAM tier.
type Store struct {
	Result
	policy    Policy
	capacity  int
	ram       int
	clock     time.Duration
	all       []*generation                 // by ID - 1
	published map[string]*generation        // by tokens
	lost      map[string]*generation        // retired, by tokens
	requests  map[uint64][]retention.Member // published, by request
	attention map[string]*page              // by the tokens up to the page's end
	homes     map[retention.ID]*home        // only those with pages
}

// NewStore returns an empty store with a RAM tier of so many pages.
func NewStore(capacity int, policy Policy) *Store {
	return &Store{
		policy:    policy,
		capacity:  capacity,
		published: make(map[string]*generation),
		lost:      make(map[string]*generation),
		requests:  make(map[uint64][]retention.Member),
		attention: make(map[string]*page),
		homes:     make(map[retention.ID]*home),
	}
}

func key(tokens []uint32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	return string(b)
}

// Restore looks the longest published prefix up and reads it.
func (s *Store) Restore(tokens []uint32, counted bool) {
	s.clock += time.Second
	k := key(tokens)
	missed := false
	var g *generation
	for n := len(k); n > 0 && g == nil; n -= 4 {
		g = s.published[k[:n]]
		if l := s.lost[k[:n]]; g == nil && l != nil && !missed {
			missed = true
			s.policy.Missed(s.clock, l.ID)
		}
	}
	if counted {
		s.Continuations++
		if g != nil && !missed {
			s.Restored++
		}
	}
	if g == nil {
		return
	}
	s.policy.Hit(s.clock, g.ID)
	s.setSuperseded(g, false)
	before := s.ReadBack
	for _, p := range g.pages {
		switch {
		case p.ram:
			s.ReadRAM++
		case p.disk:
			s.ReadBack++
			s.load(p)
		default:
			s.Failed++
		}
	}
	s.Restores++
	if s.ReadBack == before {
		s.AtOnce++
	}
	s.rest()
}

// Publish publishes a generation, all its pages at once.
func (s *Store) Publish(tokens []uint32, prompt bool, request uint64) {
	s.clock += time.Second
	g := &generation{key: key(tokens)}
	g.Member = retention.Member{
		ID: retention.ID(len(s.all) + 1), Request: request,
		Kind: retention.Response, Tokens: len(tokens),
	}
	if prompt {
		g.Kind = retention.Prompt
	}
	s.all = append(s.all, g)
	s.addPages(g)
	s.published[g.key] = g

	prefixes, siblings := s.relatives(g)
	verdict := retention.Supersede(g.Member, prefixes, siblings)
	if len(prefixes) > 0 {
		g.parent = prefixes[len(prefixes)-1].ID
	}
	s.requests[request] = append(s.requests[request], g.Member)
	s.policy.Published(s.clock, retention.Generation{
		ID: g.ID, Identity: 1, Request: request, Kind: g.Kind, Tokens: g.Tokens, Parent: g.parent, Kept: verdict.Parent,
	}, verdict.Superseded)
	if verdict.Parent != 0 {
		s.setSuperseded(s.all[verdict.Parent-1], false)
	}
	for _, id := range verdict.Superseded {
		s.setSuperseded(s.all[id-1], true)
	}
	s.cover(g)
	s.rest()
}

// relatives finds what the rules of supersession need; prefixes by length.
func (s *Store) relatives(g *generation) (prefixes, siblings []retention.Member) {
	for n := 4; n < len(g.key); n += 4 {
		if a := s.published[g.key[:n]]; a != nil {
			prefixes = append(prefixes, a.Member)
			siblings = append(siblings, s.requests[a.Request]...)
		}
	}
	return prefixes, siblings
}

func (s *Store) addPages(g *generation) {
	for end := PageTokens; end <= g.Tokens; end += PageTokens {
		k := g.key[:4*end]
		p := s.attention[k]
		if p == nil {
			p = new(page)
			s.attention[k] = p
			s.create(p, g)
		}
		g.pages = append(g.pages, p)
	}
	for range OwnPages {
		p := &page{own: true}
		s.create(p, g)
		g.pages = append(g.pages, p)
	}
	for _, p := range g.pages {
		p.links++
		p.current++
	}
}

func (s *Store) create(p *page, g *generation) {
	s.load(p)
	s.rehome(p, g.ID)
}

// cover gives pages that were there already a home whose rank heeds g too.
func (s *Store) cover(g *generation) {
	to := g.parent
	if to == 0 {
		to = g.ID
	}
	homes := map[retention.ID]bool{}
	for _, p := range g.pages {
		homes[p.home.id] = true
	}
	s.policy.Uncovered(homes, g.ID)
	for _, p := range g.pages {
		if homes[p.home.id] {
			s.rehome(p, to)
		}
	}
}

func (s *Store) load(p *page) {
	p.ram = true
	s.ram++
	if s.ram > s.capacity {
		panic(fmt.Sprintf("the RAM tier holds %d pages of %d", s.ram, s.capacity))
	}
}

// rehome gives a page a home; 0 takes it out of the one it has.
func (s *Store) rehome(p *page, id retention.ID) {
	if h := p.home; h != nil {
		last := h.pages[len(h.pages)-1]
		h.pages[p.index], last.index = last, p.index
		h.pages = h.pages[:len(h.pages)-1]
		if len(h.pages) == 0 {
			delete(s.homes, h.id)
		}
		p.home = nil
	}
	if id == 0 {
		return
	}
	h := s.homes[id]
	if h == nil {
		h = &home{id: id}
		s.homes[id] = h
	}
	p.home, p.index = h, len(h.pages)
	h.pages = append(h.pages, p)
}

func (s *Store) setSuperseded(g *generation, superseded bool) {
	if g.superseded == superseded || g.retired {
		return
	}
	g.superseded = superseded
	for _, p := range g.pages {
		if superseded {
			p.current--
		} else {
			p.current++
		}
	}
}

// Flush writes what shutdown would.
func (s *Store) Flush() {
	for _, h := range s.homes {
		for _, p := range h.pages {
			if p.ram && !p.disk {
				s.Flushed++
			}
		}
	}
}

// overdue tells whether eviction has to begin, and low where it ends.
func (s *Store) overdue() bool { return 100*s.ram > highWatermark*s.capacity }
func (s *Store) low() int      { return int(math.Floor(lowWatermark * float64(s.capacity) / 100)) }
