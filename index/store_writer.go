package index

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
)

// writer is the one connection that changes the database.
type writer struct {
	path    string
	pragmas []string

	mu struct {
		sync.Mutex
		conn         *conn // nil: to be opened, after a failure that left its state unknown
		closed       bool
		transactions uint64 // committed so far
	}
}

// connLocked returns the connection, opening it if need be.
func (w *writer) connLocked() (*conn, error) {
	if w.mu.closed {
		return nil, ErrClosed
	}
	if w.mu.conn != nil {
		return w.mu.conn, nil
	}
	c, err := openConn(w.path, "rwc", w.pragmas...)
	if err != nil {
		return nil, err
	}
	w.mu.conn = c
	return c, nil
}

// transactLocked runs f in an immediate transaction. If f or the commit
// fails, everything is rolled back and the connection can be used again.
func (w *writer) transactLocked(f func(*conn) error) (err error) {
	c, err := w.connLocked()
	if err != nil {
		return err
	}
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	c.inside = true
	done := false
	defer func() {
		if done {
			return
		}
		if e := c.rollback(); e != nil {
			c.close()
			w.mu.conn = nil
		}
	}()
	if err := f(c); err != nil {
		return err
	}
	if _, err := c.exec("COMMIT"); err != nil {
		return err
	}
	done, c.inside = true, false
	w.mu.transactions++
	return nil
}

// update is how everything is changed: with the writer's lock held, it runs
// change in a transaction, records op with it if that is not 0, and after the
// commit, still under the lock, calls apply to change what is in memory.
// If there is an error nothing has changed, neither there nor here.
//
// what says what is being done, for the error.
func (x *Index) update(what string, op Op, change func(tx *conn) error, apply func()) error {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	return x.updateLocked(what, op, change, apply)
}

// updateLocked is update for callers that hold the writer's lock.
func (x *Index) updateLocked(what string, op Op, change func(tx *conn) error, apply func()) error {
	err := x.writer.transactLocked(func(tx *conn) error {
		if err := x.ops.record(tx, op); err != nil {
			return err
		}
		return change(tx)
	})
	if err != nil {
		return fmt.Errorf("index: %s: %w", what, err)
	}
	x.ops.recorded(op)
	if apply != nil {
		apply()
	}
	return nil
}

// noteDown is update for what only keeps a record of what has been: recency,
// history, counts. It is no change of what is published, nor of where pages are.
func (x *Index) noteDown(what string, change func(tx *conn) error) error {
	return x.update(what, 0, change, func() { x.notedDown.Add(1) })
}

// Changes returns how many transactions have been committed since Open but
// those of noteDown.
func (x *Index) Changes() uint64 { return x.Transactions() - x.notedDown.Load() }

// Transactions returns how many transactions have been committed since Open.
func (x *Index) Transactions() uint64 {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	return x.writer.mu.transactions
}

func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.closed = true
	if w.mu.conn == nil {
		return nil
	}
	err := w.mu.conn.close()
	w.mu.conn = nil
	return err
}

// readers is a small pool of connections that only read. A read never waits
// for the writer: in WAL mode it sees the last commit.
type readers struct {
	path    string
	pragmas []string
	slots   chan struct{} // one for each connection in use
	idle    chan *conn
	closed  atomic.Bool
}

func newReaders(path string, max int, pragmas []string) *readers {
	return &readers{
		path:    path,
		pragmas: pragmas,
		slots:   make(chan struct{}, max),
		idle:    make(chan *conn, max),
	}
}

// read calls f with a connection, waiting for one if all are in use.
// One on which SQLite failed is closed, so that nothing of the failure stays.
func (r *readers) read(f func(*conn) error) error {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	if r.closed.Load() {
		return ErrClosed
	}
	c, err := r.take()
	if err != nil {
		return err
	}
	err = f(c)
	var e *sqlite.Error
	if errors.As(err, &e) {
		c.close()
		return err
	}
	r.idle <- c
	return err
}

func (r *readers) take() (*conn, error) {
	select {
	case c := <-r.idle:
		return c, nil
	default:
		return openConn(r.path, "rw", r.pragmas...)
	}
}

// pause keeps reads from beginning and waits until none is under way, at most so
// long. resume ends it. False: there are reads still, and nothing is paused.
func (r *readers) pause(wait time.Duration) (resume func(), ok bool) {
	timeout := time.After(wait)
	taken := 0
	resume = func() {
		for range taken {
			<-r.slots
		}
	}
	for taken < cap(r.slots) {
		select {
		case r.slots <- struct{}{}:
			taken++
		case <-timeout:
			resume()
			return nil, false
		}
	}
	return resume, true
}

// close waits for the reads under way and closes the connections. A later
// read is ErrClosed.
func (r *readers) close() {
	r.closed.Store(true)
	for range cap(r.slots) {
		r.slots <- struct{}{}
	}
	defer func() {
		for range cap(r.slots) {
			<-r.slots
		}
	}()
	for {
		select {
		case c := <-r.idle:
			c.close()
		default:
			return
		}
	}
}
