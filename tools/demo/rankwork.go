package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ckptfs/fusefs/client"
)

// othersWithin bounds how long a rank waits for the others.
const othersWithin = 2 * time.Minute

// store is a rank that stores its part of a generation.
type store struct {
	job
	pattern *pattern
}

func newStore(j job) *store { return &store{j, newPattern(j.PageBytes)} }

func (s *store) close() {}

func (s *store) round(int) (r result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), othersWithin)
	defer cancel()
	staging, err := client.Stage(ctx, s.IdentityDir, client.StageOptions{
		Name: s.Staging, Manifest: mustMarshal(s.manifest(s.PageBytes)), Tokens: tokens(s.Conversation, s.NumTokens),
	})
	if err != nil {
		return r, err
	}
	defer staging.Close()
	plan, err := staging.Plan()
	if err != nil {
		return r, err
	}
	names := s.pageNames(s.Rank)
	for _, page := range plan.MissingOf(s.Rank) {
		wrote, err := staging.WritePage(ctx, page.Path, s.pattern.page(names[page.Path]))
		if err != nil {
			return r, err
		}
		if wrote {
			r.CopiedBytes += page.Bytes
		}
	}
	publication, err := staging.Publish(ctx)
	r.Pages = len(names)
	r.SharedBytes = int64(r.Pages)*s.PageBytes - r.CopiedBytes
	r.Generation, r.Replay = publication.Generation, publication.Replay
	return r, err
}

// lookup is a process that asks for the longest prefix and holds the lease.
type lookup struct {
	job
	lease *client.Lease
}

func (l *lookup) close() {
	if l.lease != nil {
		l.lease.Close()
	}
}

func (l *lookup) round(int) (r result, err error) {
	request := tokens(l.Conversation, l.NumTokens)
	if l.lease == nil {
		l.lease, err = client.Find(context.Background(), l.IdentityDir, request, client.FindOptions{})
	} else {
		err = l.lease.Again(context.Background(), request, client.FindOptions{})
	}
	if err != nil {
		return r, err
	}
	reply := l.lease.Reply
	return result{Pages: reply.Pages.Total, DiskPages: reply.Pages.Disk, Generation: reply.Generation, Reason: reply.Reason}, nil
}

// restore is a rank that reads its pages into memory that is there already, as
// an engine's is, and compares them.
type restore struct {
	job
	pattern *pattern
	pages   []client.Page
	names   map[string]pageName
	memory  []byte
}

func newRestore(j job) *restore {
	m := j.manifest(j.PageBytes)
	w := &restore{job: j, pattern: newPattern(j.PageBytes), pages: slices.Collect(m.Pages(j.Rank)), names: j.pageNames(j.Rank)}
	w.memory = make([]byte, int64(len(w.pages))*j.PageBytes)
	for i := 0; i < len(w.memory); i += os.Getpagesize() {
		w.memory[i] = 1
	}
	return w
}

func (w *restore) close() {}

func (w *restore) round(n int) (result, error) {
	r := result{Pages: len(w.pages), CopiedBytes: int64(len(w.memory))}
	if n == 0 {
		return r, w.read()
	}
	return r, w.compare()
}

// buffer returns where a page belongs in memory.
func (w *restore) buffer(i int) []byte {
	return w.memory[int64(i)*w.PageBytes:][:w.PageBytes]
}

func (w *restore) read() error {
	generation := filepath.Join(w.IdentityDir, w.Generation)
	lease, err := os.Open(generation)
	if err != nil {
		return err
	}
	defer lease.Close()
	for i, page := range w.pages {
		if err := client.ReadPage(filepath.Join(generation, page.Path), w.buffer(i)); err != nil {
			return err
		}
	}
	return nil
}

func (w *restore) compare() error {
	for i, page := range w.pages {
		if err := w.pattern.check(w.names[page.Path], w.buffer(i)); err != nil {
			return fmt.Errorf("%s/%s: %w", w.Generation, page.Path, err)
		}
	}
	return nil
}
