// Package fusefs is the tree that the mount shows: models, identities,
// generations, stagings, over go-fuse's raw interface. Its methods decode a
// request, call into the store once, and map the error.
//
// Nothing here has to be remembered for the kernel: node ids are computed, open
// handles live in a table on the RAM tier, stagings in journals beside it. So
// another process can go on serving at any moment.
package fusefs

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/evict"
	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// Config is what a daemon serves with.
type Config struct {
	StateDir   string // holds the index
	RAMDir     string // the RAM tier: a tmpfs, or a directory in /dev/shm
	Mountpoint string
	L1Bytes    int64 // bound of the RAM tier, bytes

	MaxGenerations   int
	MaxStaging       int
	MaxHandles       int           // open files and directories; 0 is 65,536. Fewer if the limit of descriptors wants it
	StagingTimeout   time.Duration // a staging that nobody holds or changes is discarded after it
	AdmissionTimeout time.Duration // how long a manifest waits for RAM

	Tiers TierConfig

	Passthrough bool // try to have the kernel do page I/O itself
	FreshMount  bool // no former daemon served this mount: no handle or staging of it can be alive

	FuseFD      int // /dev/fuse, for notifications
	KeeperPID   int
	PID         int
	Restarts    int
	LastDeath   string // how the daemon before ended, if it was started again
	LastDeathAt time.Time
	Upgrade     string // why the last upgrade was taken back
	Resend      bool   // the kernel sends again what a killed daemon had not answered
	Version     string
	HugePages   bool
	Effective   any // what config.json says
	Logger      *slog.Logger
	LogCounts   func() LogCounts // what was logged; may be nil
	Now         func() time.Time // nil is time.Now
}

// FS serves the tree. It implements fuse.RawFileSystem.
//
// Locks: none of its own is held while it calls the store or the kernel. The
// registries (handles, backing ids, leases) have leaf locks.
type FS struct {
	fuse.RawFileSystem // what is not implemented answers ENOSYS
	cfg                Config
	log                *slog.Logger
	now                func() time.Time

	idx     *index.Index
	rebuild string // why the index was made anew, "" if it was not
	ram     *pages.RAM
	disk    *pages.Disk // nil without a disk tier
	tiers   *evict.Tiers
	live    *evict.Live
	budget  *evict.Budget
	stage   *staging.Manager
	leases  *leases

	handles  *handleTable
	backing  *backingIDs
	notify   *notifier
	started  time.Time
	server   atomic.Pointer[fuse.Server]
	count    counters
	counters []counter // what status and metrics show of them
	metrics  *metrics
	busiest  *busiest

	maxHandles  int // that clients may have
	scarce      scarce
	clients     clientMemory
	snapshotted atomic.Int64 // bytes of all snapshots in the RAM tier

	gate  gate
	root  rootAttr
	tombs tombstones

	unpublishing sync.Mutex // one generation is turned into a draft at a time
	bounding     sync.Mutex // one look for generations to retire at a time
	closed       closedWriters
	takingUp     pages.Turns // who opens a page that is there for writing: one at a time looks at it and takes a handle

	reconciled chan struct{} // closed when what no start waits for is done
	flushes    chan struct{} // see flushSoon
	publishing atomic.Int64  // publications that retention has not been told of
	stopping   atomic.Bool

	keptFill atomic.Int64 // of the disk tier, as the index has it

	background context.Context // ends with stop
	stop       context.CancelFunc
	wg         sync.WaitGroup
}

// New opens the state, takes over what a former daemon of this mount left, and
// is then ready to serve.
func New(cfg Config) (*FS, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxHandles == 0 {
		cfg.MaxHandles = defaultSlots
	}
	fs := &FS{RawFileSystem: fuse.NewDefaultRawFileSystem(), cfg: cfg, log: cfg.Logger, now: cfg.Now, started: cfg.Now(), metrics: newMetrics(), busiest: newBusiest(cfg.Now), flushes: make(chan struct{}, 1)}
	if err := fs.open(); err != nil {
		fs.closeParts()
		return nil, err
	}
	fs.counters = fs.counterTable()
	fs.metrics.registry.MustRegister(newStatusCollector(fs))
	ctx, cancel := context.WithCancel(context.Background())
	fs.background, fs.stop = ctx, cancel
	fs.reconciled = make(chan struct{})
	fs.wg.Add(4)
	go func() { defer fs.wg.Done(); fs.notify.run(ctx) }()
	go func() { defer fs.wg.Done(); fs.reconcile(ctx) }()
	fs.tiers.Start()
	go func() { defer fs.wg.Done(); fs.housekeep(ctx) }()
	go func() { defer fs.wg.Done(); fs.checkpoint(ctx) }()
	return fs, nil
}

func (fs *FS) open() (err error) {
	if err := fs.openIndex(); err != nil {
		return err
	}
	if fs.ram, err = pages.OpenRAM(fs.cfg.RAMDir); err != nil {
		return err
	}
	fs.leases = newLeases()
	if err := fs.openTiers(); err != nil {
		return err
	}
	if err := fs.root.open(filepath.Join(fs.cfg.StateDir, "root.json"), fs.now()); err != nil {
		return err
	}
	fs.notify = newNotifier(fs.cfg.FuseFD, fs.log)
	fs.backing = newBackingIDs(fs)
	fs.maxHandles = handleLimit(fs.cfg.MaxHandles, fs.cfg.MaxStaging, openFiles().Max)
	if fs.handles, err = openTable(fs.cfg.RAMDir, fs.cfg.MaxHandles+controlHandles, fs.cfg.FreshMount); err != nil {
		return err
	}
	if fs.cfg.FreshMount {
		if err := fs.idx.ForgetOps(); err != nil {
			return fmt.Errorf("index: %w", err)
		}
	}
	fs.stage, err = staging.New(staging.Config{
		Index: fs.idx, RAM: fs.ram, Live: fs.live, Budget: fs.budget, Writers: fs, Log: fs.log,
		MaxStaging: fs.cfg.MaxStaging, Timeout: fs.cfg.StagingTimeout, AdmissionTimeout: fs.cfg.AdmissionTimeout,
		AskRoom: fs.tiers.AskRoom, Evict: fs.evictOf, Retiring: fs.tiers.Retiring, Retired: fs.tiers.Retired, Save: fs.saveFirst, Changed: fs.linksChanged, Waited: fs.metrics.waited, Now: fs.now,
	}, fs.cfg.FreshMount)
	if err != nil {
		return err
	}
	fs.tiers.Busy = func() bool { return fs.stage.Count() > 0 || fs.publishing.Load() > 0 }
	if err := fs.openSnapshots(); err != nil {
		return fmt.Errorf("RAM tier: %w", err)
	}
	fs.handles.recovered(fs.adopt)
	if err := fs.openTombstones(); err != nil {
		return fmt.Errorf("RAM tier: %w", err)
	}
	return fs.adoptPages()
}

// Init is called by go-fuse when the kernel's INIT has been answered.
func (fs *FS) Init(s *fuse.Server) { fs.server.Store(s) }

// String names the filesystem in go-fuse's messages.
func (fs *FS) String() string { return "ckptfs" }

// Forget has nothing to forget: node ids are computed.
func (fs *FS) Forget(nodeid, nlookup uint64) {}

// OnUnmount has nothing to do: Close ends what runs.
func (fs *FS) OnUnmount() {}

// Drain lets the requests under way finish; later ones wait for the next daemon.
func (fs *FS) Drain(ctx context.Context) error {
	fs.stopping.Store(true)
	return fs.gate.shut(ctx)
}

// Close ends the background work and closes the state. The server must have
// stopped, or been drained.
func (fs *FS) Close() error {
	fs.stop()
	fs.tiers.Stop()
	fs.wg.Wait()
	return fs.closeParts()
}

func (fs *FS) closeParts() error {
	var err error
	if fs.handles != nil {
		err = fs.handles.close()
	}
	if fs.ram != nil {
		fs.ram.Close()
	}
	if fs.tiers != nil {
		fs.keptFill.Store(-1)
		fs.keepFill()
	}
	if fs.idx != nil {
		if cerr := fs.idx.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// housekeep discards stagings past their timeout, and writes down which
// generations lookups have used: every few seconds, and at once if one is current
// again by that.
func (fs *FS) housekeep(ctx context.Context) {
	every := min(max(fs.cfg.StagingTimeout/4, 50*time.Millisecond), 10*time.Second)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-fs.flushes:
			fs.flushTouched()
			continue
		case <-t.C:
		}
		if err := fs.idx.RestoreReserve(); err != nil {
			fs.log.Debug("the index's reserve is not there again yet", "error", err)
		}
		fs.flushTouched()
		fs.keepFill()
		fs.fitRAM()
		for _, d := range fs.stage.Reap() {
			fs.log.Info("discarded a staging that nobody held or changed", "identity", d.Identity.Name, "staging", d.Name(), "timeout", fs.cfg.StagingTimeout)
			fs.count.stagingsDiscarded.Add(1)
			parent, name := fs.draftEntry(d)
			fs.notify.entry(parent, name)
		}
	}
}

// keepFill writes down what the disk tier holds, if that has changed. It is only
// a hint for the next start, which counts anew beside the service.
func (fs *FS) keepFill() {
	fill := fs.disk.Usage().ContentBytes()
	if fill == fs.keptFill.Load() {
		return
	}
	if err := fs.idx.SetDiskBytes(fill); err != nil {
		fs.log.Debug("the disk tier's fill was not kept", "error", err)
		return
	}
	fs.keptFill.Store(fill)
}

func (fs *FS) flushTouched() {
	if err := fs.idx.FlushTouched(); err != nil {
		fs.log.Warn("recency could not be written to the index", "error", err)
	}
}

// flushSoon has that done at once, without waiting for it.
func (fs *FS) flushSoon() {
	select {
	case fs.flushes <- struct{}{}:
	default:
	}
}

// draftEntry is where the kernel knows the staging's name.
func (fs *FS) draftEntry(d *staging.Draft) (nodeID, string) {
	if d.Ghost() {
		return makeNode(kindIdentity, d.Identity.ID), d.Name()
	}
	return makeNode(kindStagingDir, d.Identity.ID), d.Name()
}

// linksChanged tells the kernel that the link counts of pages have changed, and
// returns when it knows.
func (fs *FS) linksChanged(ids []pages.ID) {
	fs.notify.attributes(ids)
}
