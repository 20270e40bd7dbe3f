package index

import (
	"database/sql/driver"
	"sync"
)

// Op is the id of a request of the kernel, 0 for none. A change that was made
// for a request is recorded with it, in the same transaction, so that the
// request is known when it is sent again after the daemon was restarted.
type Op uint64

// maxOps bounds how many are remembered: more than the kernel ever has under
// way at once.
const maxOps = 4096

// ops are the recent requests.
type ops struct {
	seq int64 // of the next one; the writer's lock guards it

	mu struct {
		sync.Mutex
		done map[Op]struct{}
		ring [maxOps]Op // by seq % maxOps
	}
}

// Done reports whether the change for op has been made.
func (x *Index) Done(op Op) bool {
	x.ops.mu.Lock()
	defer x.ops.mu.Unlock()
	_, ok := x.ops.mu.done[op]
	return ok
}

// ForgetOps forgets them all, for a fresh mount: its request ids begin again.
func (x *Index) ForgetOps() error {
	return x.free("forgetting requests", 0, func(tx *conn) error {
		_, err := tx.exec("DELETE FROM recent")
		return err
	}, func() {
		x.ops.mu.Lock()
		defer x.ops.mu.Unlock()
		clear(x.ops.mu.done)
		clear(x.ops.mu.ring[:])
	})
}

// record adds op to a transaction.
func (o *ops) record(tx *conn, op Op) error {
	if op == 0 {
		return nil
	}
	if _, err := tx.exec("INSERT INTO recent VALUES (?, ?)", o.seq, int64(op)); err != nil {
		return err
	}
	_, err := tx.exec("DELETE FROM recent WHERE seq <= ?", o.seq-maxOps)
	return err
}

// recorded adds op in memory, after the commit.
func (o *ops) recorded(op Op) {
	if op == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	slot := &o.mu.ring[o.seq%maxOps]
	delete(o.mu.done, *slot)
	*slot = op
	o.mu.done[op] = struct{}{}
	o.seq++
}

// load reads what was recorded.
func (o *ops) load(c *conn) error {
	o.mu.done = make(map[Op]struct{})
	return c.query("SELECT seq, op FROM recent ORDER BY seq", func(row []driver.Value) error {
		o.seq = row[0].(int64)
		o.recorded(Op(row[1].(int64)))
		return nil
	})
}
