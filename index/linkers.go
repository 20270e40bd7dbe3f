package index

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"ckptfs/pages"
)

// linkers finds the generations that may have a page. Ids are given out in
// order, so the pages of a generation lie in few blocks of ids, its own in one
// or two; for each block it lists the generations that have any page of it. A
// page list says which of them have the page itself.
//
// Nobody needs it to store or to find anything, only people who ask about a
// page: it is made when that happens first, from the page lists, and kept up to
// date from then on. It takes 8 bytes for each block of each generation, some
// ten blocks in a conversation of ten turns.
//
// The lock is a leaf; making has its own, which is held while page lists are read.
type linkers struct {
	making sync.Mutex
	mu     struct {
		sync.Mutex
		blocks map[pages.ID][]*Generation // nil: nobody has asked yet
		there  int                        // generations in blocks
		gone   int                        // of them, those that have been retired
	}
}

// linkBlock is how many ids make a block.
const linkBlock = 64

// add enters a generation that has become visible. Twice does no harm.
func (l *linkers) add(g *Generation, list []pages.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.blocks == nil {
		return
	}
	l.mu.there++
	last := ^pages.ID(0)
	for _, id := range list {
		b := id / linkBlock
		if b == last {
			continue
		}
		last = b
		if in := l.mu.blocks[b]; len(in) == 0 || in[len(in)-1] != g {
			l.mu.blocks[b] = append(in, g)
		}
	}
}

// retired counts a generation that has gone. When most have, all is forgotten:
// who asks next makes it anew.
func (l *linkers) retired() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.blocks == nil {
		return
	}
	if l.mu.gone++; l.mu.gone > l.mu.there/2+1024 {
		l.mu.blocks, l.mu.there, l.mu.gone = nil, 0, 0
	}
}

// of lists the generations that may have the page, in the order in which they
// were published. False: it has to be made first.
func (l *linkers) of(page pages.ID) ([]*Generation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.blocks == nil {
		return nil, false
	}
	gs := slices.Clone(l.mu.blocks[page/linkBlock])
	inOrder(gs)
	return slices.Compact(gs), true
}

// begin makes it empty, to be filled; what is published from then on is entered.
func (l *linkers) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.blocks, l.mu.there, l.mu.gone = make(map[pages.ID][]*Generation), 0, 0
}

func (l *linkers) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.blocks = nil
}

// mayLink is linkers.of, and makes the linkers if need be.
func (x *Index) mayLink(page pages.ID) ([]*Generation, error) {
	x.linkers.making.Lock()
	defer x.linkers.making.Unlock()
	for {
		if gs, ok := x.linkers.of(page); ok {
			return gs, nil
		}
		if err := x.makeLinkers(); err != nil {
			x.linkers.forget()
			return nil, err
		}
	}
}

// makeLinkers fills them. If very much is retired meanwhile they are forgotten
// again.
func (x *Index) makeLinkers() error {
	x.linkers.begin()
	return x.readers.read(func(c *conn) error {
		return eachPageList(c, func(id ObjectID, list []pages.ID) error {
			if g := x.GenerationByID(id); g != nil {
				x.linkers.add(g, list)
			}
			return nil
		})
	})
}

// EachLinking calls f for the published generations that link a page, the one
// published last first, until f returns false. No lock is held while f runs. The
// first call reads all page lists, later ones those of the generations that have
// pages whose ids are nearby.
func (x *Index) EachLinking(page pages.ID, f func(*Generation) bool) error {
	gs, err := x.mayLink(page)
	if err != nil {
		return fmt.Errorf("index: looking for the generations of page %d: %w", page, err)
	}
	for _, g := range slices.Backward(gs) {
		if g.Retired() {
			continue
		}
		list, err := x.PageIDs(g)
		switch {
		case errors.Is(err, ErrNotExist): // retired in this instant
		case err != nil:
			return err
		case slices.Contains(list, page) && !f(g):
			return nil
		}
	}
	return nil
}

// Linking lists the published generations that link a page; see EachLinking.
func (x *Index) Linking(page pages.ID) (gs []*Generation, err error) {
	err = x.EachLinking(page, func(g *Generation) bool {
		gs = append(gs, g)
		return true
	})
	return gs, err
}
