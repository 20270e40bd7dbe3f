package evict

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/evict/retention"
	"ckptfs/index"
	"ckptfs/pages"
)

// WritePolicy says when current pages get their disk copies.
type WritePolicy string

// The write policies.
const (
	WriteOnEvict WritePolicy = "on-evict" // once, when RAM is about to drop them, and at shutdown
	WriteAlways  WritePolicy = "always"   // before their publication returns
	WriteNever   WritePolicy = "never"    // not at all: what RAM drops is retired
)

// Config is what Tiers work with.
type Config struct {
	Index  *index.Index
	RAM    *pages.RAM
	Disk   *pages.Disk
	Live   *Live
	Budget *Budget
	Policy retention.Policy
	Log    *slog.Logger
	Now    func() time.Time

	High, Low   float64       // watermarks: parts of the RAM tier
	Grace       time.Duration // how long a superseded fork point is not given up like other superseded ones
	WritePolicy WritePolicy
	Writers     int           // write-backs at a time
	Loaders     int           // pages that are brought to RAM for lookups at a time
	LoadWait    time.Duration // how long an open waits for RAM before it is served from disk

	// Busy reports whether a staging is under way. May be nil; it may be set
	// before Start.
	Busy func() bool
	// Retire takes generations out of the index, in one transaction, and has
	// the kernel forget them. It is called with no lock held.
	Retire func(gs []*index.Generation, reason index.Reason) error
	// Leases lists the generations that are leased as a whole.
	Leases func() []index.ObjectID
	// Spare reports whether a generation may be retired now, and keeps it from
	// being leased until Spared ends that.
	Spare  func(index.ObjectID) bool
	Spared func(index.ObjectID)
	// Again is told of a generation that is published without anybody's request:
	// the index had forgotten it. May be nil.
	Again func(*index.Generation)
	// Took is told how long something took. May be nil.
	Took func(Work, time.Duration)
	// Evicted is told how long an evicted page has been in RAM. May be nil.
	Evicted func(age time.Duration)
}

// Tiers makes one store of the RAM tier and the disk tier: it brings pages to
// RAM, writes them back, and decides with the policy what leaves a tier.
//
// Locks: evicting is held by whoever evicts, over I/O and transactions; no
// handler of the mount waits for it except one that needs RAM for new pages.
// The policy's lock is taken under it and is held over no I/O. The locks of
// residency and loads are leaves.
type Tiers struct {
	Config
	res   *residency
	began time.Time

	evicting sync.Mutex
	bounding sync.Mutex // one look for room in the disk tier at a time; may be taken under evicting
	policy   struct {
		sync.Mutex
		retention.Policy
	}
	lookups    lookups
	waiting    waiting
	turns      atomic.Int64 // publications that superseded something: a plan from before is stale
	loads      loads
	hints      hints
	adoption   adoption
	failLogged atomic.Int64 // when a failed write was last logged, ns since the start
	kept       kept
	ahead      ahead
	blobs      blobs
	health     *health
	kick       chan struct{}
	queue      chan []*index.Page // pages that lookups want in RAM
	reads      chan struct{}      // has one for each page that is being read from disk
	reading    atomic.Int64       // pages that are being read from disk in this moment
	wanted     atomic.Int64       // how many pages that is, with those that are being brought
	Counts     Counts

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Counts count since the start. Bytes are those of pages.
type Counts struct {
	WrittenPages   atomic.Int64
	WrittenEvict   atomic.Int64 // page bytes written to disk because RAM was needed
	WrittenFlush   atomic.Int64 // because the daemon stops
	WrittenDurable atomic.Int64 // because somebody waits for durability
	WrittenDrop    atomic.Int64 // because an operator empties RAM
	StoredBytes    atomic.Int64 // what objects of written pages take on disk
	WriteFailures  atomic.Int64
	Deduplicated   atomic.Int64 // bytes that a publication found there already
	LoadedBytes    atomic.Int64 // page bytes brought to RAM
	LoadedPages    atomic.Int64
	UncachedOpens  atomic.Int64 // opens served from disk for want of RAM
	EvictedPages   atomic.Int64
	EvictedBytes   atomic.Int64
	EvictedAge     atomic.Int64 // ns that evicted copies have been in RAM, summed up
	// Bytes given up without a write, with their generations: because those were
	// superseded, because their kind is not continued, because disk writes failed.
	DroppedSuperseded atomic.Int64
	DroppedUnlikely   atomic.Int64
	DroppedPressure   atomic.Int64
	LostPages         atomic.Int64
}

// WrittenBytes is how many page bytes have been written to disk.
func (c *Counts) WrittenBytes() int64 {
	return c.WrittenEvict.Load() + c.WrittenFlush.Load() + c.WrittenDurable.Load() + c.WrittenDrop.Load()
}

// New makes the tiers; Start begins the background work.
func New(cfg Config) *Tiers {
	t := &Tiers{
		Config: cfg, res: newResidency(), began: cfg.Now(), kick: make(chan struct{}, 1), queue: make(chan []*index.Page, 1024),
		reads: make(chan struct{}, readsAtATime(cfg.Loaders)),
	}
	t.policy.Policy = cfg.Policy
	t.res.now = t.now
	t.loads.m = map[pages.ID]*load{}
	t.hints.init()
	t.kept.init()
	t.blobs.init()
	t.health = newHealth(cfg.Now)
	t.Live.removed = t.forget
	t.Budget.setKick(int64(float64(cfg.Budget.Limit())*cfg.High), t.wake)
	return t
}

// Start begins to evict and to bring pages.
func (t *Tiers) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	t.stop = cancel
	t.wg.Add(1 + t.Loaders)
	go func() { defer t.wg.Done(); t.evictLoop(ctx) }()
	t.wg.Go(func() { t.keptLoop(ctx) })
	if t.Disk != nil {
		t.wg.Go(func() { t.blobLoop(ctx) })
		t.wg.Go(func() { t.probeLoop(ctx) })
	}
	for range t.Loaders {
		go func() { defer t.wg.Done(); t.loadLoop(ctx) }()
	}
}

// Stop ends the background work.
func (t *Tiers) Stop() {
	if t.stop != nil {
		t.stop()
		t.wg.Wait()
	}
}

func (t *Tiers) took(w Work, d time.Duration) {
	if t.Took != nil {
		t.Took(w, d)
	}
}

func (t *Tiers) now() time.Duration { return t.Now().Sub(t.began) }

// wake asks for a look at the watermarks.
func (t *Tiers) wake() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// forget is told that nothing needs a page any more: its storage goes in both
// tiers. Staged pages have no row, and a disk copy only if they were to be durable
// before their publication.
func (t *Tiers) forget(id pages.ID, charge int64, row *index.Page) {
	t.forgetRAM(id, charge, row == nil)
	key, there := t.ahead.take(id)
	if row != nil {
		key, there = row.Key, true
	}
	if !there || t.Disk == nil {
		return
	}
	t.hints.drop(id)
	t.removeObject(key)
}

// InRAM reports whether the RAM tier has a copy of the published page.
func (t *Tiers) InRAM(id pages.ID) bool {
	there, _ := t.res.find(id)
	return there
}

// Resident is the number of published pages in RAM.
func (t *Tiers) Resident() int { return t.res.count() }
