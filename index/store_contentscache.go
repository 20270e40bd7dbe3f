package index

import (
	"container/list"
	"sync"
)

// contentsCache has the contents used lately, bounded in number and in bytes.
type contentsCache struct {
	maxCount int
	maxBytes int64

	mu struct {
		sync.Mutex
		byID  map[ObjectID]*list.Element // of contentsEntry
		order list.List                  // the one used last at the front
		bytes int64
		epoch uint64 // counts what was dropped, so that nothing old is put here
	}
}

type contentsEntry struct {
	id ObjectID
	c  *Contents
}

func newContentsCache(maxCount int, maxBytes int64) *contentsCache {
	l := &contentsCache{maxCount: maxCount, maxBytes: maxBytes}
	l.mu.byID = make(map[ObjectID]*list.Element)
	return l
}

// get returns the contents, nil if they are not here, and the epoch to put
// them here with.
func (l *contentsCache) get(id ObjectID) (*Contents, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.mu.byID[id]
	if e == nil {
		return nil, l.mu.epoch
	}
	l.mu.order.MoveToFront(e)
	return e.Value.(contentsEntry).c, l.mu.epoch
}

// put puts contents here that were read in an epoch, unless something was
// dropped since: then they may be old.
func (l *contentsCache) put(id ObjectID, c *Contents, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.epoch != epoch || l.mu.byID[id] != nil {
		return
	}
	l.addLocked(id, c)
}

// published puts the contents of a generation here that was just committed.
func (l *contentsCache) published(id ObjectID, c *Contents) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(id, c)
}

func (l *contentsCache) addLocked(id ObjectID, c *Contents) {
	l.mu.byID[id] = l.mu.order.PushFront(contentsEntry{id, c})
	l.mu.bytes += c.bytes()
	for l.mu.order.Len() > 1 && (l.mu.order.Len() > l.maxCount || l.mu.bytes > l.maxBytes) {
		l.removeLocked(l.mu.order.Back())
	}
}

func (l *contentsCache) removeLocked(e *list.Element) {
	entry := l.mu.order.Remove(e).(contentsEntry)
	delete(l.mu.byID, entry.id)
	l.mu.bytes -= entry.c.bytes()
}

// drop takes contents out, after a commit that changed or deleted them.
func (l *contentsCache) drop(id ObjectID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.epoch++
	if e := l.mu.byID[id]; e != nil {
		l.removeLocked(e)
	}
}
