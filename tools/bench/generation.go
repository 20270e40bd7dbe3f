package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"ckptfs/fusefs/client"
)

const (
	modelName     = "bench/model"
	worldSize     = 4
	pageTokens    = 1024
	largePage     = 6893568 // bytes of a page of a production model
	smallPage     = 64 << 10
	tinyPage      = 64
	attention     = "target.attention.0"
	recurrent     = "target.recurrent"
	auxiliary     = "target-draft-auxiliary"
	publishPages  = 224 // of the generation whose publication is measured
	requestTokens = 200_000
)

// token is the i-th of a conversation.
func token(seed, i int64) uint32 {
	x := uint64(seed)*0x9e3779b97f4a7c15 + uint64(i)
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return uint32((x ^ x>>31) % 151936)
}

func tokens(seed int64, n int) []uint32 {
	t := make([]uint32, n)
	for i := range t {
		t[i] = token(seed, int64(i))
	}
	return t
}

// findRequest is a lookup of the first n tokens of a conversation; those from
// diverges on, if that is not 0, are others.
func findRequest(seed int64, n, diverges int) []byte {
	t := tokens(seed, n)
	if diverges > 0 {
		copy(t[diverges:], tokens(^seed, n)[diverges:])
	}
	return append(fmt.Appendf(nil, "{\"num_tokens\":%d}\n", n), client.EncodeTokens(t)...)
}

// identityDocument authenticates a layout; worldSize and the size of its pages
// make it one of its own.
func identityDocument(world int, pageBytes int64) []byte {
	return mustJSON(map[string]any{
		"schema_version":  1,
		"target_revision": "git:3b1f0c9d2e4a5b6c7d8e9f00112233445566778a",
		"draft_revision":  "git:77aa0c9d2e4a5b6c7d8e9f00112233445566778b",
		"source_revision": "git:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
		"layout":          map[string]any{"dtype": "bf16", "page_bytes": pageBytes, "page_tokens": pageTokens},
		"parallel":        map[string]any{"world_size": world},
	})
}

// identify gives the identity's directory in the mount.
func (m *mounted) identify(pageBytes int64) (string, error) {
	dir, err := client.Identify(m.b.ctx, m.path, client.ModelDir(modelName), identityDocument(worldSize, pageBytes))
	if err != nil {
		return "", err
	}
	return dir, nil
}

// evenManifest is a generation with so many attention pages per rank and
// nothing else: all pages alike, as the rows about speed want them.
func evenManifest(seed int64, perRank int, pageBytes int64) client.Manifest {
	return client.Manifest{
		SchemaVersion: 2, Kind: client.KindPrompt, Request: fmt.Sprintf("bench-%d", seed), NumTokens: perRank * pageTokens,
		PageGroups: []client.PageGroup{
			{Name: attention, Role: client.RoleAttention, PageTokens: pageTokens, PageBytes: pageBytes, Positions: count(0, perRank)},
		},
	}
}

// hybridManifest is a generation as a hybrid model has it: attention pages, a
// recurrent page of each of several groups, and an auxiliary one.
func hybridManifest(seed int64, numTokens int, kind string, positions []int, recurrentGroups int, pageBytes int64) client.Manifest {
	last := (numTokens - 1) / pageTokens
	m := client.Manifest{SchemaVersion: 2, Kind: kind, Request: fmt.Sprintf("bench-%d", seed), NumTokens: numTokens}
	m.PageGroups = append(m.PageGroups, client.PageGroup{Name: attention, Role: client.RoleAttention, PageTokens: pageTokens, PageBytes: pageBytes, Positions: positions})
	for g := range recurrentGroups {
		m.PageGroups = append(m.PageGroups, client.PageGroup{Name: fmt.Sprintf("%s.%d", recurrent, g), Role: client.RoleRecurrent, PageBytes: pageBytes, Positions: []int{last}})
	}
	m.PageGroups = append(m.PageGroups, client.PageGroup{Name: auxiliary, Role: client.RoleAuxiliary, PageBytes: pageBytes, Positions: []int{0}})
	return m
}

// count is from, from+1, … n numbers.
func count(from, n int) []int {
	xs := make([]int, n)
	for i := range xs {
		xs[i] = from + i
	}
	return xs
}

// stage begins a generation in the identity and gives the plan.
func (b *bench) stage(identityDir string, seed int64, m client.Manifest) (*client.Staging, client.Plan, error) {
	s, err := client.Stage(b.ctx, identityDir, client.StageOptions{
		Name: fmt.Sprintf("bench-%d", b.count.Add(1)), Manifest: mustJSON(m), Tokens: tokens(seed, m.NumTokens),
	})
	if err != nil {
		return nil, client.Plan{}, err
	}
	plan, err := s.Plan()
	if err != nil {
		s.Close()
	}
	return s, plan, err
}

// store stores a generation with its missing pages written by one process, and
// gives its directory.
func (b *bench) store(identityDir string, seed int64, m client.Manifest) (string, error) {
	s, plan, err := b.stage(identityDir, seed, m)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if err := writeMissing(s, plan); err != nil {
		return "", err
	}
	p, err := s.Publish(b.ctx)
	return p.Dir, err
}

func writeMissing(s *client.Staging, plan client.Plan) error {
	var content []byte
	for _, p := range plan.Missing {
		if int64(len(content)) < p.Bytes {
			content = make([]byte, p.Bytes)
		}
		path := filepath.Join(s.Dir(), p.Path)
		if err := os.WriteFile(path, content[:p.Bytes], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rankPaths gives the paths of the attention pages below dir, by rank.
func rankPaths(dir string, perRank int) [][]string {
	ranks := make([][]string, worldSize)
	for r := range ranks {
		for p := range perRank {
			ranks[r] = append(ranks[r], filepath.Join(dir, client.PagePath(r, attention, p)))
		}
	}
	return ranks
}

// rankJobs is one job for each rank's process.
func rankJobs(op string, dir string, perRank int, pageBytes int64) []job {
	var jobs []job
	for _, paths := range rankPaths(dir, perRank) {
		jobs = append(jobs, job{Op: op, Paths: paths, Bytes: pageBytes})
	}
	return jobs
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a document of the bench: %v", err)) // only literals come here
	}
	return b
}
