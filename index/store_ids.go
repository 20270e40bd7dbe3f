package index

import "sync/atomic"

// ObjectID is the persistent number of a model, an identity, a generation, a
// staging or a page (pages.ID is of the same space). None is given out twice,
// whatever crashes. 0 is no object.
type ObjectID uint64

// idBlock is how many ids are reserved at once.
const idBlock = 1 << 20

// ids gives out the numbers next..end-1. The database has a number from which
// on nothing was given out, and it is moved on, and is on stable storage,
// before a number above it is used: what a lost id names may be durable
// elsewhere.
type ids struct {
	next atomic.Uint64
	end  atomic.Uint64 // grows under the writer's lock
}

// NextID returns an id that was never returned before. It does I/O only when
// a block is used up. It returns 0 if then no other block can be reserved;
// the caller answers ENOSPC.
func (x *Index) NextID() ObjectID {
	for {
		n := x.ids.next.Load()
		if n < x.ids.end.Load() {
			if x.ids.next.CompareAndSwap(n, n+1) {
				return ObjectID(n)
			}
			continue
		}
		if err := x.reserveIDs(); err != nil {
			x.opt.Logger.Error("no ids can be reserved", "error", err)
			return 0
		}
	}
}

// reserveIDs makes sure that there is at least one id left.
func (x *Index) reserveIDs() error {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	end := x.ids.end.Load()
	if x.ids.next.Load() < end {
		return nil // another caller was first
	}
	end += idBlock
	err := x.updateLocked("reserving ids", 0, func(tx *conn) error {
		return setNextID(tx, end)
	}, nil)
	if err != nil {
		return err
	}
	if err := x.Sync(); err != nil {
		return err
	}
	x.ids.end.Store(end)
	return nil
}

func setNextID(tx *conn, n uint64) error {
	_, err := tx.exec("UPDATE meta SET value = ? WHERE name = 'next_id'", int64(n))
	return err
}
