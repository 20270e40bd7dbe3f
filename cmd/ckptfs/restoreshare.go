package main

import (
	"context"
	"sync"

	"ckptfs/fusefs/client"
	"ckptfs/pages"
)

// claims see to it that generations restored side by side copy a page that they share once: one copies it, the others
// wait, and find it in their plan then.
type claims struct {
	mu sync.Mutex
	by map[pages.Key]chan struct{} // closed when whoever copies the page is done with it
}

func newClaims() *claims { return &claims{by: map[pages.Key]chan struct{}{}} }

// take claims the pages that nobody else copies. other is closed when one of the rest is decided; nil if there is no rest.
func (c *claims) take(missing []client.Page, keys map[string]pages.Key) (mine []client.Page, other <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, page := range missing {
		key := keys[page.Path]
		if busy, ok := c.by[key]; ok {
			other = busy
			continue
		}
		c.by[key] = make(chan struct{})
		mine = append(mine, page)
	}
	return mine, other
}

// give ends claims, whether the pages were copied or not.
func (c *claims) give(list []client.Page, keys map[string]pages.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, page := range list {
		key := keys[page.Path]
		close(c.by[key])
		delete(c.by, key)
	}
}

// await waits for a claim of somebody else.
func await(ctx context.Context, other <-chan struct{}) error {
	select {
	case <-other:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
