package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"path/filepath"
	"time"

	"ckptfs/evict/retention/sim"
	"ckptfs/fusefs/client"
)

const (
	pageBytes = 64 << 10
	attention = "attention"
	auxiliary = "auxiliary"
)

// player is the one client process.
type player struct {
	ctx      context.Context
	m        *mounted
	identity string
	seed     uint64
	names    map[string]string // every generation ever published, by tokens
	staged   int
	err      error // the first; nothing is done after it

	failed, restored, continuations int
}

var _ sim.Player = (*player)(nil)

func newPlayer(ctx context.Context, m *mounted, seed uint64) (*player, error) {
	document := mustJSON(map[string]any{
		"schema_version": 1, "draft_revision": "",
		"target_revision": "git:3b1f0c9d2e4a5b6c7d8e9f00112233445566778a",
		"source_revision": "git:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
		"layout":          map[string]any{"page_bytes": pageBytes},
		"parallel":        map[string]any{"world_size": 1},
	})
	dir, err := client.Identify(ctx, m.path, "workload", document)
	return &player{ctx: ctx, m: m, identity: dir, seed: seed, names: map[string]string{}}, err
}

// Restore looks the prompt up and reads every page of what is found.
func (p *player) Restore(tokens []uint32, counted bool) {
	if p.err != nil {
		return
	}
	lease, err := client.Find(p.ctx, p.identity, tokens, client.FindOptions{})
	if err != nil {
		p.err = err
		return
	}
	if counted {
		p.continuations++
		if lease.Reply.Generation == p.extended(tokens) {
			p.restored++
		}
	}
	if lease.Hit() {
		n := lease.Reply.NumTokens
		if err := p.read(lease.Dir(), manifest(lease.Reply.Kind, "", n), tokens[:n]); err != nil {
			p.failed++
			p.m.note("a restore failed: %v", err)
		}
	}
	if err := lease.Close(); err != nil {
		p.err = err
		return
	}
	p.rest()
}

// extended is the longest generation ever published that is a prefix of tokens.
func (p *player) extended(tokens []uint32) string {
	k := key(tokens)
	for n := len(k); n > 0; n -= 4 {
		if name, ok := p.names[k[:n]]; ok {
			return name
		}
	}
	return ""
}

func (p *player) read(dir string, m client.Manifest, tokens []uint32) error {
	got := make([]byte, pageBytes)
	for page := range m.Pages(0) {
		if err := client.ReadPage(filepath.Join(dir, page.Path), got); err != nil {
			return err
		}
		if !bytes.Equal(got, p.content(page.Path, m.Kind, tokens)) {
			return fmt.Errorf("%s has foreign bytes", page.Path)
		}
	}
	return nil
}

// Publish publishes a generation and lets eviction come to rest.
func (p *player) Publish(tokens []uint32, prompt bool, request uint64) {
	if p.err != nil {
		return
	}
	kind := client.KindResponse
	if prompt {
		kind = client.KindPrompt
	}
	m := manifest(kind, fmt.Sprintf("request-%d", request), len(tokens))
	name, err := p.publish(m, tokens)
	if err != nil {
		p.err = fmt.Errorf("publishing %d tokens: %w", len(tokens), err)
		return
	}
	p.names[key(tokens)] = name
	p.rest()
}

func (p *player) publish(m client.Manifest, tokens []uint32) (name string, err error) {
	p.staged++
	s, err := client.Stage(p.ctx, p.identity, client.StageOptions{
		Name: fmt.Sprintf("s%d", p.staged), Manifest: mustJSON(m), Tokens: tokens,
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	plan, err := s.Plan()
	if err != nil {
		return "", err
	}
	for _, page := range plan.Missing {
		if _, err := s.WritePage(p.ctx, page.Path, p.content(page.Path, m.Kind, tokens)); err != nil {
			return "", err
		}
	}
	_, err = s.Publish(p.ctx)
	return plan.Generation, err
}

// manifest has the full attention pages of the prefix, seven pages of recurrent
// state and one that stands for the partial attention page, and an auxiliary
// page: nine of its own.
func manifest(kind, request string, tokens int) client.Manifest {
	m := client.Manifest{SchemaVersion: 2, Kind: kind, Request: request, NumTokens: tokens}
	full := make([]int, tokens/sim.PageTokens)
	for i := range full {
		full[i] = i
	}
	m.PageGroups = append(m.PageGroups, client.PageGroup{
		Name: attention, Role: client.RoleAttention, PageTokens: sim.PageTokens, PageBytes: pageBytes, Positions: full,
	})
	for g := range sim.OwnPages - 1 {
		m.PageGroups = append(m.PageGroups, client.PageGroup{
			Name: fmt.Sprintf("state.%d", g), Role: client.RoleRecurrent, PageBytes: pageBytes, Positions: []int{0},
		})
	}
	m.PageGroups = append(m.PageGroups, client.PageGroup{
		Name: auxiliary, Role: client.RoleAuxiliary, PageBytes: pageBytes, Positions: []int{0},
	})
	return m
}

// content is what a page has: random bytes that follow from the seed, the page's
// name and the tokens that it stands for.
func (p *player) content(path, kind string, tokens []uint32) []byte {
	var position int
	if n, err := fmt.Sscanf(path, "rank-0/"+attention+"/%d", &position); n == 1 && err == nil {
		tokens, kind = tokens[:(position+1)*sim.PageTokens], ""
	}
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], p.seed)
	binary.LittleEndian.PutUint64(seed[8:], maphash.String(hashSeed, path))
	binary.LittleEndian.PutUint64(seed[16:], maphash.String(hashSeed, key(tokens)))
	binary.LittleEndian.PutUint64(seed[24:], maphash.String(hashSeed, kind))
	b := make([]byte, pageBytes)
	_, _ = rand.NewChaCha8(seed).Read(b) // it never fails
	return b
}

// hashSeed differs from run to run; what counts is that bytes are the same
// within one, and incompressible.
var hashSeed = maphash.MakeSeed()

func key(tokens []uint32) string { return string(client.EncodeTokens(tokens)) }

// restWithin is how long eviction may take after one step.
const restWithin = time.Minute

// rest waits until eviction and loading have nothing to do.
func (p *player) rest() {
	for end := time.Now().Add(restWithin); ; time.Sleep(time.Millisecond) {
		s, err := p.m.status()
		switch {
		case err != nil:
			p.err = err
			return
		case s.AtRest:
			return
		case time.Now().After(end):
			p.err = fmt.Errorf("eviction has not come to rest within %v", restWithin)
			return
		}
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a document of the workload: %v", err)) // only literals come here
	}
	return b
}
