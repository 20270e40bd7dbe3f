package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"ckptfs/fusefs/client"
)

// restoreTally counts what a restore did.
type restoreTally struct {
	restored, present        atomic.Int64 // generations
	copiedPages, sharedPages atomic.Int64
	copiedBytes, sharedBytes atomic.Int64
}

// roomPause is how long a generation waits before it asks for room again.
const roomPause = 200 * time.Millisecond

func (r *restore) identityDir(i *backupIdentity) string {
	return filepath.Join(r.mount, i.model, i.name)
}

// generation stages, copies and publishes one generation. If it is refused nothing of it stays; if it is interrupted
// the staging stays for the next run.
func (r *restore) generation(ctx context.Context, g *backupGeneration) error {
	c, err := g.check() // again: what it holds is not kept in memory meanwhile
	if err != nil {
		return err
	}
	s, err := r.stage(ctx, g, c)
	if err != nil {
		return err
	}
	defer s.Close()
	r.staged.Add(1)
	defer r.staged.Add(-1)
	copied, err := r.copyPages(ctx, s, g, c)
	if err == nil {
		copyTreeAttr(g.dir, s.Dir(), c.pages)
		limited, cancel := context.WithTimeout(ctx, r.flags.wait)
		_, err = s.Publish(limited)
		cancel()
	}
	if err != nil {
		if ctx.Err() == nil {
			err = errors.Join(err, s.Abandon())
		}
		return err
	}
	r.done.restored.Add(1)
	r.done.sharedPages.Add(int64(len(c.pages)) - copied.copiedPages)
	r.done.sharedBytes.Add(g.bytes - copied.copiedBytes)
	r.bar.add(g.bytes - copied.copiedBytes)
	return nil
}

// stage makes the staging, or joins the one that an interrupted restore left. Want of room or of a staging is waited
// for: others of this run give theirs back.
func (r *restore) stage(ctx context.Context, g *backupGeneration, c *checked) (*client.Staging, error) {
	for deadline := time.Now().Add(r.flags.wait); ; {
		before := r.done.restored.Load()
		s, err := client.Stage(ctx, r.identityDir(g.identity), client.StageOptions{Name: "restore-" + g.name, Manifest: c.manifest})
		wait := errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOSPC) && (r.staged.Load() > 0 || r.done.restored.Load() > before)
		if !wait || time.Now().After(deadline) {
			return s, err
		}
		select {
		case <-time.After(roomPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// copyPages copies what the plan misses, until it misses nothing.
func (r *restore) copyPages(ctx context.Context, s *client.Staging, g *backupGeneration, c *checked) (tally, error) {
	var pages, bytes atomic.Int64
	for {
		plan, err := s.Plan()
		if err != nil || len(plan.Missing) == 0 {
			return tally{copiedPages: pages.Load(), copiedBytes: bytes.Load()}, err
		}
		mine, other := r.claims.take(plan.Missing, c.keys)
		if len(mine) == 0 {
			if err := await(ctx, other); err != nil {
				return tally{}, err
			}
			continue
		}
		group, groupCtx := errgroup.WithContext(ctx)
		for _, page := range mine {
			r.slots <- struct{}{}
			group.Go(func() error {
				defer func() { <-r.slots }()
				copied, err := r.copyPage(groupCtx, s, g, page)
				if copied {
					pages.Add(1)
					bytes.Add(page.Bytes)
				}
				return err
			})
		}
		err = group.Wait()
		r.claims.give(mine, c.keys)
		if err != nil {
			return tally{}, err
		}
	}
}

// copyPage copies one page, with its owner and mtime. False if it is there by now.
func (r *restore) copyPage(ctx context.Context, s *client.Staging, g *backupGeneration, page client.Page) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	f, info, err := openRegular(filepath.Join(g.dir, page.Path))
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info.Size() != page.Bytes {
		return false, fmt.Errorf("%s has %d bytes by now, and the manifest says %d", f.Name(), info.Size(), page.Bytes)
	}
	copied, err := s.CopyPage(ctx, page.Path, page.Bytes, f)
	if err != nil || !copied {
		return false, err
	}
	copyAttr(info, filepath.Join(s.Dir(), page.Path))
	r.done.copiedPages.Add(1)
	r.done.copiedBytes.Add(page.Bytes)
	r.bar.add(page.Bytes)
	return true, nil
}
