package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// applicationID stands in the header of our databases: "ckpt".
	applicationID = 0x636b7074
	// schemaVersion is the version of the tables below. Another one is not
	// read: the index can be rebuilt from the tiers.
	schemaVersion = 1
)

// schema creates the tables; SCHEMA.md describes them.
var schema = []string{
	`CREATE TABLE meta (
		name  TEXT PRIMARY KEY,
		value INTEGER NOT NULL
	) WITHOUT ROWID`,
	`CREATE TABLE models (
		id    INTEGER PRIMARY KEY,
		name  TEXT NOT NULL UNIQUE,
		mode  INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, mtime INTEGER NOT NULL
	)`,
	`CREATE TABLE identities (
		id       INTEGER PRIMARY KEY,
		model    INTEGER NOT NULL,
		name     TEXT NOT NULL,
		document BLOB,
		mode     INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, mtime INTEGER NOT NULL,
		doc_uid  INTEGER NOT NULL, doc_gid INTEGER NOT NULL, doc_mtime INTEGER NOT NULL,
		UNIQUE (model, name)
	)`,
	`CREATE TABLE generations (
		id             INTEGER PRIMARY KEY,
		seq            INTEGER NOT NULL,
		identity       INTEGER NOT NULL,
		digest         BLOB NOT NULL,
		kind           TEXT NOT NULL,
		tokens         INTEGER NOT NULL,
		draft_prefix   INTEGER NOT NULL,
		request        TEXT NOT NULL,
		root           BLOB NOT NULL,
		prefix         BLOB NOT NULL,
		tail           INTEGER,
		published      INTEGER NOT NULL,
		used           INTEGER NOT NULL,
		state          INTEGER NOT NULL,
		superseded_by  INTEGER NOT NULL,
		parent         INTEGER NOT NULL,
		pages          INTEGER NOT NULL,
		page_bytes     INTEGER NOT NULL,
		manifest_bytes INTEGER NOT NULL,
		mode           INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, mtime INTEGER NOT NULL,
		blob           INTEGER NOT NULL,
		UNIQUE (identity, digest)
	)`,
	`CREATE TABLE contents (
		generation INTEGER PRIMARY KEY,
		manifest   BLOB NOT NULL,
		pages      BLOB NOT NULL,
		attrs      BLOB NOT NULL
	)`,
	`CREATE TABLE pages (
		id    INTEGER PRIMARY KEY,
		key   BLOB NOT NULL,
		bytes INTEGER NOT NULL,
		links INTEGER NOT NULL,
		mode  INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, mtime INTEGER NOT NULL,
		disk  INTEGER NOT NULL
	)`,
	`CREATE INDEX pages_unlinked ON pages(links) WHERE links = 0`,
	`CREATE INDEX pages_ramonly ON pages(disk) WHERE disk = 0`,
	`CREATE TABLE keys (
		block   INTEGER PRIMARY KEY,
		entries BLOB NOT NULL
	)`,
	`CREATE TABLE retired (
		seq      INTEGER PRIMARY KEY,
		identity INTEGER NOT NULL,
		tokens   INTEGER NOT NULL,
		root     BLOB NOT NULL,
		prefix   BLOB NOT NULL,
		tail     INTEGER,
		at       INTEGER NOT NULL,
		reason   TEXT NOT NULL,
		generation INTEGER NOT NULL
	)`,
	`CREATE TABLE tier (
		id     TEXT PRIMARY KEY,
		starts INTEGER NOT NULL
	) WITHOUT ROWID`,
	`CREATE TABLE history (
		seq        INTEGER PRIMARY KEY,
		identity   INTEGER NOT NULL,
		generation TEXT NOT NULL,
		at         INTEGER NOT NULL,
		text       TEXT NOT NULL
	)`,
	`CREATE INDEX history_generation ON history(generation)`,
	`CREATE TABLE settings (
		object INTEGER PRIMARY KEY,
		pin    INTEGER NOT NULL,
		quota  INTEGER NOT NULL
	)`,
	`CREATE TABLE recent (
		seq INTEGER PRIMARY KEY,
		op  INTEGER NOT NULL
	)`,
	`INSERT INTO meta VALUES ('next_id', 1), ('disk_bytes', 0)`,
}

// checkOurs looks at the file without changing it: no error if it is a
// database of ours, or if there is nothing in it yet, which is fresh.
func checkOurs(path string) (fresh bool, err error) {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && st.Size() == 0 {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("index: %w", err)
	}
	if !st.Mode().IsRegular() {
		return false, corruptf("%s is not a file", path)
	}
	app, version, err := readHeader(path)
	if err != nil {
		return false, err
	}
	if app == 0 && version == 0 {
		// Not ours, unless we were killed before the first checkpoint: then
		// what the header will be is still in the log.
		if fresh, app, version, err = readThroughLog(path); fresh || err != nil {
			return fresh, err
		}
	}
	switch {
	case app != applicationID:
		return false, corruptf("%s is a database of something else (application id %#x)", path, app)
	case version != schemaVersion:
		return false, corruptf("%s has schema version %d, this program knows %d", path, version, schemaVersion)
	}
	return false, nil
}

// readHeader reads the application id and the schema version from the file's
// header (https://www.sqlite.org/fileformat.html#the_database_header).
func readHeader(path string) (app, version int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("index: %w", err)
	}
	defer f.Close()
	var header [100]byte
	if _, err := io.ReadFull(f, header[:]); err == io.EOF || err == io.ErrUnexpectedEOF {
		return 0, 0, corruptf("%s is shorter than the header of a database", path)
	} else if err != nil {
		return 0, 0, fmt.Errorf("index: %w", err)
	}
	if string(header[:16]) != "SQLite format 3\x00" {
		return 0, 0, corruptf("%s is not a database", path)
	}
	version = int64(binary.BigEndian.Uint32(header[60:]))
	app = int64(binary.BigEndian.Uint32(header[68:]))
	return app, version, nil
}

// readThroughLog reads the same through SQLite, which looks into the
// write-ahead log as well. fresh: there are no tables at all.
func readThroughLog(path string) (fresh bool, app, version int64, err error) {
	c, err := openConn(path, "rw", "query_only=1")
	if err != nil {
		return false, 0, 0, err
	}
	defer c.close()
	var tables int64
	for text, dst := range map[string]*int64{
		"SELECT count(*) FROM sqlite_schema": &tables,
		"PRAGMA application_id":              &app,
		"PRAGMA user_version":                &version,
	} {
		if *dst, err = c.integer(text); err != nil {
			return false, 0, 0, fmt.Errorf("index: reading %s: %w", path, err)
		}
	}
	return tables == 0 && app == 0 && version == 0, app, version, nil
}

// createSchema makes the tables of a fresh database, all or none.
func createSchema(c *conn) error {
	statements := append([]string{"BEGIN IMMEDIATE"}, schema...)
	statements = append(statements,
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", schemaVersion),
		"COMMIT")
	for _, s := range statements {
		if err := c.query(s, nil); err != nil {
			c.rollback()
			return fmt.Errorf("creating the index: %w", err)
		}
	}
	return nil
}
