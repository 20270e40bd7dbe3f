package index

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the settings of Open. The zero value has good ones.
type Options struct {
	Logger           *slog.Logger
	BusyTimeout      time.Duration // how long to wait for a lock of another process; 5 s
	Readers          int           // connections for reads on demand; 4
	CachedPages      int           // pages kept in memory though nobody holds them; 65536 (160 bytes each)
	CachedContents   int           // generations whose contents are kept; 4096
	CachedBytes      int64         // bytes of contents kept; 64 MiB
	WriterCacheBytes int64         // SQLite's page cache of the writer; 8 MiB
	LogBytes         int64         // the log is made to begin again when it is longer; 32 MiB
	ReservePath      string        // a file that keeps space for deletions on a full disk; "": none
	ReserveBytes     int64         // its size; 4 MiB
}

// Option is Options.
type Option = Options

func (o *Options) setDefaults() {
	setDefault(&o.BusyTimeout, 5*time.Second)
	setDefault(&o.Readers, 4)
	setDefault(&o.CachedPages, 1<<16)
	setDefault(&o.CachedContents, 1<<12)
	setDefault(&o.CachedBytes, 64<<20)
	setDefault(&o.WriterCacheBytes, 8<<20)
	setDefault(&o.LogBytes, 32<<20)
	setDefault(&o.ReserveBytes, 4<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Index knows what is published: models, identities, generations, and the
// pages that they need. SCHEMA.md describes its database.
//
// Models, identities, generations and the keys of pages are in memory; page
// rows and contents are read on demand and cached. Reads never wait for a
// transaction. Every change is a transaction of the one writer, and changes
// memory after its commit; one that fails changes nothing.
//
// Lock order: the writer's lock; then Index.mu, Model.mu or Identity.mu, one
// at a time; then those of keys, page cache, contents cache, recent requests,
// touched generations and linkers, one at a time. No I/O is done under any but the
// writer's lock, and no callback is called under any other.
type Index struct {
	opt     Options
	path    string
	writer  writer
	readers *readers
	zstd    *manifestCodec

	checkpoints *readers // the one connection that empties the log
	checkpoint  checkpointState

	ids         ids
	ops         ops
	nextSeq     int64       // of the next publication; the writer's lock guards it
	retirements retirements // likewise

	keys     keyIndex
	pages    *pageCache
	contents *contentsCache
	touched  touched
	recency  recency
	notes    notes
	usage    usage
	linkers  linkers
	pins     atomic.Int64 // objects that are pinned themselves

	staleBlobs atomic.Uint64
	notedDown  atomic.Uint64 // transactions of noteDown
	reserve    reserve

	mu struct {
		sync.RWMutex
		models         listing[*Model]
		modelByID      map[ObjectID]*Model
		identityByID   map[ObjectID]*Identity
		generationByID map[ObjectID]*Generation
	}
}

// Open opens the index at path, making an empty one if there is none. An error
// that is ErrCorrupt means that the database, in which nothing was changed, is
// of no use.
// One process opens an index at a time; the caller sees to that.
func Open(path string, opt Option) (*Index, error) {
	opt.setDefaults()
	x, err := open(path, opt)
	if r := (&reserve{path: opt.ReservePath}); errors.Is(err, ErrFull) && r.release(0) {
		opt.Logger.Warn("the disk is full: the reserve is used to open the index")
		x, err = open(path, opt)
	}
	if err != nil {
		return nil, err
	}
	x.reserve.path, x.reserve.bytes = opt.ReservePath, opt.ReserveBytes
	_ = x.reserve.restore() // where there is no space for it now, later
	return x, nil
}

func open(path string, opt Options) (*Index, error) {
	fresh, err := checkOurs(path)
	if err != nil {
		return nil, err
	}
	x := newIndex(path, opt)
	if x.zstd, err = newManifestCodec(); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	if err := x.open(fresh); err != nil {
		x.closeConnections()
		return nil, err
	}
	return x, nil
}

func newIndex(path string, opt Options) *Index {
	x := &Index{
		opt:      opt,
		path:     path,
		pages:    newPageCache(opt.CachedPages),
		contents: newContentsCache(opt.CachedContents, opt.CachedBytes),
	}
	busy := fmt.Sprintf("busy_timeout=%d", opt.BusyTimeout.Milliseconds())
	x.writer.path = path
	x.writer.pragmas = []string{
		busy, "journal_mode=WAL", "synchronous=NORMAL",
		fmt.Sprintf("cache_size=-%d", opt.WriterCacheBytes>>10),
		// Checkpoint does it in time; this only bounds the log if nobody calls it.
		fmt.Sprintf("wal_autocheckpoint=%d", 2*opt.LogBytes/logPageBytes),
	}
	x.readers = newReaders(path, opt.Readers, []string{busy, "query_only=1"})
	x.checkpoints = newReaders(path, 1, []string{busy, "query_only=1"})
	x.checkpoint.left = true // a former process may have left something in the log
	x.mu.modelByID = make(map[ObjectID]*Model)
	x.mu.identityByID = make(map[ObjectID]*Identity)
	x.mu.generationByID = make(map[ObjectID]*Generation)
	return x
}

// open makes the tables if need be, reads what is held in memory, and reserves
// the first block of ids.
func (x *Index) open(fresh bool) error {
	x.writer.mu.Lock()
	c, err := x.writer.connLocked()
	if err == nil && fresh {
		err = createSchema(c)
	}
	if err == nil {
		err = x.load(c)
	}
	x.writer.mu.Unlock()
	if err != nil {
		return err
	}
	if fresh {
		if err := x.Checkpoint(); err != nil { // the file's header says from now on whose it is
			return err
		}
		if err := syncDir(filepath.Dir(x.path)); err != nil {
			return err
		}
	}
	err = x.reserveIDs()
	if errors.Is(err, ErrFull) && x.opt.ReservePath != "" {
		if _, serr := os.Stat(x.opt.ReservePath); errors.Is(serr, os.ErrNotExist) {
			x.opt.Logger.Warn("the disk is full: nothing new can be made", "error", err)
			return nil // the reserve has been used; NextID tries again
		}
	}
	return err
}

// load reads the tables; the keys on a second connection meanwhile.
func (x *Index) load(c *conn) error {
	keys := make(chan error, 1)
	go func() { keys <- x.readers.read(x.keys.load) }()
	next, err := c.integer("SELECT value FROM meta WHERE name = 'next_id'")
	if err == nil && next < 1 {
		err = corruptf("the next id is %d", next)
	}
	x.ids.next.Store(uint64(next))
	x.ids.end.Store(uint64(next))
	for _, load := range []func(*conn) error{x.loadModels, x.loadIdentities, x.loadGenerations, x.loadSettings, x.loadRetired, x.ops.load} {
		if err == nil {
			err = load(c)
		}
	}
	err = errors.Join(err, <-keys)
	if isLogicError(err) { // a table or a column is not there
		err = corruptf("%v", err)
	}
	if err != nil {
		return fmt.Errorf("index: reading %s: %w", x.path, err)
	}
	return nil
}

// Close writes what Touch noted, gives unused ids back, and closes the
// database. No other call may be under way or follow.
func (x *Index) Close() error {
	err := x.FlushTouched()
	if err == nil {
		err = x.update("giving ids back", 0, func(tx *conn) error {
			next := x.ids.next.Swap(x.ids.end.Load())
			return setNextID(tx, next)
		}, nil)
	}
	return errors.Join(err, x.closeConnections())
}

// closeConnections closes the writer's connection last: the last one to be
// closed empties the log.
func (x *Index) closeConnections() error {
	x.readers.close()
	x.checkpoints.close()
	x.zstd.close()
	return x.writer.close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("index: syncing %s: %w", dir, err)
	}
	return nil
}
