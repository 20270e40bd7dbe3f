package index

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"net/url"

	"modernc.org/sqlite"
)

// A conn is one SQLite connection with its prepared statements. It talks to
// the driver itself: the pool of database/sql, its locks and its conversions
// would cost more than most of the statements here. It is used by one
// goroutine at a time. The texts of statements are constants, so that the
// cache of prepared ones is bounded.
type conn struct {
	driver driver.Conn
	stmts  map[string]stmt
	args   []driver.NamedValue
	row    []driver.Value
	ran    int // statements

	inside bool  // a transaction is under way
	failed error // of a statement in it, which may have ended it: nothing more is executed until rollback
}

// stmt is what the driver's prepared statements can do.
type stmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// openConn opens the database at path, which is created if it isn't there
// unless mode is "rw", and executes the pragmas in their order.
func openConn(path, mode string, pragmas ...string) (*conn, error) {
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "mode=" + mode}
	d, err := new(sqlite.Driver).Open(name.String())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, wrapSQLite(err))
	}
	c := &conn{driver: d, stmts: make(map[string]stmt)}
	for _, p := range pragmas {
		if err := c.query("PRAGMA "+p, nil); err != nil {
			c.close()
			return nil, fmt.Errorf("opening %s: PRAGMA %s: %w", path, p, err)
		}
	}
	return c, nil
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		s.Close()
	}
	c.stmts = nil
	return wrapSQLite(c.driver.Close())
}

// prepare returns the prepared statement of a text, which is about to run.
func (c *conn) prepare(text string) (stmt, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	c.ran++
	if s, ok := c.stmts[text]; ok {
		return s, nil
	}
	if c.stmts == nil {
		return nil, ErrClosed
	}
	prepared, err := c.driver.Prepare(text)
	if err != nil {
		return nil, wrapSQLite(err)
	}
	s := prepared.(stmt)
	c.stmts[text] = s
	return s, nil
}

// bind numbers the arguments, which are int64, string, []byte or nil.
// The result is valid until the next call.
func (c *conn) bind(args []driver.Value) []driver.NamedValue {
	c.args = c.args[:0]
	for i, v := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return c.args
}

// exec executes a statement and returns how many rows it changed.
func (c *conn) exec(text string, args ...driver.Value) (int64, error) {
	s, err := c.prepare(text)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(context.Background(), c.bind(args))
	if err != nil {
		return 0, c.fail(err)
	}
	return r.RowsAffected()
}

// query executes a statement and calls each, if not nil, with every row. The
// row's slice is used again for the next one, blobs and strings are not.
func (c *conn) query(text string, each func(row []driver.Value) error, args ...driver.Value) (err error) {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), c.bind(args))
	if err != nil {
		return c.fail(err)
	}
	defer func() {
		if e := rows.Close(); err == nil && e != nil {
			err = c.fail(e)
		}
	}()
	row := c.row
	c.row = nil // each may query too
	if n := len(rows.Columns()); cap(row) < n {
		row = make([]driver.Value, n)
	} else {
		row = row[:n]
	}
	defer func() { c.row = row }()
	for {
		if err := rows.Next(row); err == io.EOF {
			return nil
		} else if err != nil {
			return c.fail(err)
		}
		if each == nil {
			continue
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// integer returns the first column of a statement's first row, 0 if it has
// none.
func (c *conn) integer(text string, args ...driver.Value) (int64, error) {
	var n int64
	err := c.query(text, func(row []driver.Value) error {
		n, _ = row[0].(int64)
		return nil
	}, args...)
	return n, err
}

// fail notes that a statement failed, and returns the error. What would be
// executed after SQLite has ended the transaction would be one of its own.
func (c *conn) fail(err error) error {
	err = wrapSQLite(err)
	if c.inside {
		c.failed = err
	}
	return err
}

// rollback ends a transaction that failed. Some failures (a full disk, an I/O
// error) have ended it already. An error means that the state of the
// connection is not known.
func (c *conn) rollback() error {
	c.inside, c.failed = false, nil
	_, err := c.exec("ROLLBACK")
	if isLogicError(err) {
		return nil // no transaction is active
	}
	return err
}
