package index

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// logPageBytes is what a page takes in the log: SQLite's page and its frame's header.
	logPageBytes = 4096 + 24
	// readsWithin bounds how long emptying the log waits for reads under way.
	readsWithin = 100 * time.Millisecond
)

// checkpointState is what the last Checkpoint knew. Its lock is held over I/O;
// nobody but Checkpoint takes it.
type checkpointState struct {
	sync.Mutex
	transactions uint64 // committed when it began
	left         bool   // it could not copy all
}

// Checkpoint copies what the log has into the database, so that the log can
// begin again. The daemon calls it every few seconds. It waits for the disk, and
// nobody waits for it, but in one case: a log that reads or commits under way
// have kept from beginning again until it is longer than LogBytes. Then both are
// held off while the last of it is copied; if reads go on for long, until the
// next time. Without a commit since the last call it does nothing.
func (x *Index) Checkpoint() error {
	x.checkpoint.Lock()
	defer x.checkpoint.Unlock()
	now := x.Transactions()
	if now == x.checkpoint.transactions && !x.checkpoint.left {
		return nil
	}
	log, left, err := x.copyLog("PRAGMA wal_checkpoint(PASSIVE)")
	if err == nil && log > x.opt.LogBytes {
		left, err = x.restartLog()
	}
	if err != nil {
		return fmt.Errorf("index: checkpoint: %w", err)
	}
	x.checkpoint.transactions, x.checkpoint.left = now, left
	return nil
}

// copyLog runs a checkpoint. It returns how long the log is, in bytes, and
// whether some of it is not in the database yet.
func (x *Index) copyLog(pragma string) (logBytes int64, left bool, err error) {
	err = x.checkpoints.read(func(c *conn) error {
		return c.query(pragma, func(row []driver.Value) error {
			busy, _ := row[0].(int64)
			log, _ := row[1].(int64)
			copied, _ := row[2].(int64)
			logBytes, left = log*logPageBytes, busy != 0 || copied < log
			return nil
		})
	})
	return logBytes, left, err
}

// restartLog empties the log while nobody reads or writes.
func (x *Index) restartLog() (left bool, err error) {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	resume, ok := x.readers.pause(readsWithin)
	if !ok {
		return true, nil
	}
	defer resume()
	_, left, err = x.copyLog("PRAGMA wal_checkpoint(TRUNCATE)")
	return left, err
}

// Sync returns when everything committed so far is on stable storage. What is
// not in the log any more has been synced before it was taken out.
func (x *Index) Sync() error {
	f, err := os.Open(x.path + "-wal")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	defer f.Close()
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("index: syncing %s-wal: %w", x.path, err)
	}
	return nil
}
