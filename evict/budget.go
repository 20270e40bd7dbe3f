package evict

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// ErrNoRoom says that RAM for a generation could not be had in the time given.
// It is an ENOSPC.
var ErrNoRoom = fmt.Errorf("no room in the RAM tier: %w", syscall.ENOSPC)

// ErrTooLarge says that a generation is larger than the whole RAM tier. It is
// an ENOSPC, and nothing was evicted for it.
var ErrTooLarge = fmt.Errorf("larger than the RAM tier: %w", syscall.ENOSPC)

// Budget divides the RAM tier's bytes: held by pages, reserved by stagings for
// pages to come, free. Bytes are what the tmpfs takes for them (whole blocks).
//
// The lock is a leaf: nothing else is taken or called while it is held.
type Budget struct {
	limit int64

	mu struct {
		sync.Mutex
		held     int64
		reserved int64
		waiting  int64         // what those want who wait for room
		freed    chan struct{} // closed and replaced whenever bytes return
		high     int64         // kick is called when more is used
		kick     func()
	}
}

// blockBytes is the unit in which a tmpfs gives out memory.
const blockBytes = 4096

// Charge is what a page of so many bytes takes in the RAM tier.
func Charge(pageBytes int64) int64 {
	return (pageBytes + blockBytes - 1) / blockBytes * blockBytes
}

// NewBudget makes a budget of limit bytes, all free.
func NewBudget(limit int64) *Budget {
	b := &Budget{limit: limit}
	b.mu.freed = make(chan struct{})
	return b
}

// setKick has kick called whenever more than high bytes are used after a
// reservation. kick must not block; it is called under the lock.
func (b *Budget) setKick(high int64, kick func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.high, b.mu.kick = high, kick
}

// Limit is the size of the tier in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Usage is the bytes held by pages and those reserved for pages to come.
func (b *Budget) Usage() (held, reserved int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.held, b.mu.reserved
}

// Reserve takes n bytes for pages to come. While they are not there it calls
// makeRoom with what is missing (with no lock held), now and then again, and
// waits for bytes to return, until ctx ends: ErrNoRoom. While it waits it holds
// nothing, so two that wait cannot starve each other, but what it wants counts as
// waited for. ErrTooLarge at once if n can never be had.
func (b *Budget) Reserve(ctx context.Context, n int64, makeRoom func(missing int64)) error {
	if n > b.limit {
		return ErrTooLarge
	}
	missing, freed := b.tryReserve(n)
	if missing <= 0 {
		return nil
	}
	b.wait(n)
	defer b.wait(-n)
	for {
		makeRoom(missing)
		if missing, freed = b.tryReserve(n); missing <= 0 {
			return nil
		}
		select {
		case <-freed:
		case <-time.After(askAgain):
		case <-ctx.Done():
			return errors.Join(ErrNoRoom, context.Cause(ctx))
		}
		if missing, _ = b.tryReserve(n); missing <= 0 {
			return nil
		}
	}
}

// TryReserve is Reserve where nothing is waited for.
func (b *Budget) TryReserve(n int64) bool {
	missing, _ := b.tryReserve(n)
	return missing <= 0
}

func (b *Budget) wait(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.waiting += n
}

// Waiting is how many bytes are wanted by those who wait for room, and how many
// of them are not free.
func (b *Budget) Waiting() (wanted, missing int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.waiting == 0 {
		return 0, 0
	}
	return b.mu.waiting, max(b.mu.held+b.mu.reserved+b.mu.waiting-b.limit, 0)
}

// askAgain is after how long makeRoom is called again when nothing has returned:
// a lease may have ended meanwhile, which frees nothing by itself.
const askAgain = 100 * time.Millisecond

func (b *Budget) tryReserve(n int64) (missing int64, freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing = b.mu.held + b.mu.reserved + n - b.limit
	if missing <= 0 {
		b.mu.reserved += n
	}
	if b.mu.kick != nil && b.mu.held+b.mu.reserved > b.mu.high {
		b.mu.kick()
	}
	return missing, b.mu.freed
}

// Unreserve gives reserved bytes back.
func (b *Budget) Unreserve(n int64) { b.change(0, -n) }

// Fill turns n reserved bytes into held ones: a page has been made.
func (b *Budget) Fill(n int64) { b.change(n, -n) }

// Unfill turns n held bytes back into reserved ones: a page of a staging that
// still wants it is gone.
func (b *Budget) Unfill(n int64) { b.change(-n, n) }

// Hold charges n bytes that are there already: a page adopted at start.
func (b *Budget) Hold(n int64) { b.change(n, 0) }

// Free gives n held bytes back: a page's storage is gone.
func (b *Budget) Free(n int64) { b.change(-n, 0) }

func (b *Budget) change(held, reserved int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.held += held
	b.mu.reserved += reserved
	if reserved < 0 && b.mu.reserved == 0 && b.mu.kick != nil && b.mu.held > b.mu.high {
		b.mu.kick() // what eviction may have waited for
	}
	if held+reserved < 0 {
		close(b.mu.freed)
		b.mu.freed = make(chan struct{})
	}
}

// AdoptReserved takes up a reservation of a former daemon.
func (b *Budget) AdoptReserved(n int64) { b.change(0, n) }
