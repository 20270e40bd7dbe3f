package index

import (
	"errors"
	"fmt"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Errors of the store. Each is to be tested with errors.Is; most of them wrap
// the errno that a filesystem answers.
var (
	ErrExist    = fmt.Errorf("already there: %w", syscall.EEXIST)
	ErrNotExist = fmt.Errorf("not there: %w", syscall.ENOENT)
	ErrNotEmpty = fmt.Errorf("not empty: %w", syscall.ENOTEMPTY)

	// ErrNoDocument: nothing can be published in an identity that has no document.
	ErrNoDocument = fmt.Errorf("no identity document: %w", syscall.EPERM)
	// ErrDocumentNeeded: what is published needs the document.
	ErrDocumentNeeded = fmt.Errorf("generations are published under this document: %w", syscall.EBUSY)

	// ErrFull: the disk or the quota of the database is full. Nothing was
	// changed; the same call succeeds once there is space.
	ErrFull = fmt.Errorf("no space for the index: %w", syscall.ENOSPC)
	// ErrReadOnly: the database or its file system can't be written.
	ErrReadOnly = fmt.Errorf("the index is read-only: %w", syscall.EROFS)
	// ErrIO: the disk failed. Nothing was changed.
	ErrIO = fmt.Errorf("the index can't be read or written: %w", syscall.EIO)
	// ErrBusy: another process holds the database for longer than
	// Options.BusyTimeout.
	ErrBusy = fmt.Errorf("the index is locked by another process: %w", syscall.EAGAIN)
	// ErrClosed: the index has been closed.
	ErrClosed = fmt.Errorf("the index is closed: %w", syscall.EIO)

	// ErrCorrupt: the file is not a database of ours, has another schema
	// version, or contradicts itself. Open changes nothing in it, so that the
	// caller can keep it aside and rebuild the index from the tiers.
	ErrCorrupt = errors.New("not a usable index")
)

// corruptf returns an ErrCorrupt that says what was found.
func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// wrapSQLite adds to an error of the driver the error of this package that
// its result code stands for. Any other error is returned as it is.
func wrapSQLite(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%w: %w", classOf(e.Code()), err)
}

// isLogicError reports whether SQLite refused a statement as such.
func isLogicError(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_ERROR
}

// classOf maps a result code of SQLite, extended or not; see
// https://www.sqlite.org/rescode.html.
func classOf(code int) error {
	if code == sqlite3.SQLITE_IOERR_SHMSIZE { // the -shm file could not grow
		return ErrFull
	}
	switch code & 0xff {
	case sqlite3.SQLITE_FULL:
		return ErrFull
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return ErrReadOnly
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return ErrBusy
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ErrCorrupt
	}
	return ErrIO
}
