package fusefs

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"ckptfs/evict"
	"ckptfs/evict/retention"
	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// TierConfig is how the two tiers work together.
type TierConfig struct {
	Dir            string // of the disk tier; "" is below the state directory
	L2Bytes        int64  // bound of the disk tier on real bytes; 0: only MinFree
	MinFreeBytes   int64  // what the disk tier leaves free on its disk
	Compress       pages.Compress
	High, Low      float64 // watermarks of the RAM tier
	WritePolicy    evict.WritePolicy
	Retention      string // recency or adaptive
	SupersedeGrace time.Duration
}

// Fixed numbers of the tiers. A page is read and written in large pieces, so few
// at a time keep a disk busy.
const (
	writersAtATime = 2
	loadersAtATime = 4
	loadWait       = 2 * time.Second
)

// openTiers opens the disk tier and joins it with the RAM tier.
func (fs *FS) openTiers() error {
	tc := fs.cfg.Tiers
	if tc.Dir == "" {
		tc.Dir = filepath.Join(fs.cfg.StateDir, "disk")
	}
	if tc.High == 0 {
		tc.High, tc.Low = 0.8, 0.64
	}
	if tc.WritePolicy == "" {
		tc.WritePolicy = evict.WriteOnEvict
	}
	id, err := fs.tierID()
	if err != nil {
		return err
	}
	fs.disk, err = pages.OpenDisk(pages.DiskConfig{
		Dir: tc.Dir, SizeBytes: tc.L2Bytes, MinFreeBytes: tc.MinFreeBytes, Compress: tc.Compress, OnEvent: fs.diskEvent, TierID: id,
	})
	if err == nil {
		err = fs.joinTier()
	}
	if err != nil {
		return tierRefused(tc.Dir, err)
	}
	content, err := fs.idx.DiskBytes()
	if err == nil {
		err = tc.fits(content)
	}
	if err == nil {
		err = fs.disk.SetContentBytes(content)
	}
	if err != nil {
		return fmt.Errorf("disk tier: %w", err)
	}
	fs.keptFill.Store(content)
	fs.budget = evict.NewBudget(fs.cfg.L1Bytes)
	fs.live = evict.NewLive(fs.ram, fs.budget)
	fs.tiers = evict.New(evict.Config{
		Index: fs.idx, RAM: fs.ram, Disk: fs.disk, Live: fs.live, Budget: fs.budget,
		Policy: policyOf(tc), Log: fs.log, Now: fs.now,
		High: tc.High, Low: tc.Low, Grace: tc.SupersedeGrace, WritePolicy: tc.WritePolicy,
		Writers: writersAtATime, Loaders: loadersAtATime, LoadWait: loadWait,
		Retire: fs.retireServerSide, Leases: fs.leases.all, Spare: fs.leases.spare, Spared: fs.leases.spared, Again: fs.publishedAgain, Took: fs.metrics.took, Evicted: fs.metrics.evicted,
	})
	fs.tiers.ExpectLearn()
	return fs.ram.ClearLoads()
}

// absurdlySmall is how many times what it may keep the disk tier can hold before
// the bound is taken for a mistake: a wrong unit is a thousand.
const absurdlySmall = 8

// fits refuses a bound that would delete nearly all that the tier holds.
func (tc *TierConfig) fits(contentBytes int64) error {
	if tc.L2Bytes == 0 || contentBytes/absurdlySmall <= tc.L2Bytes {
		return nil
	}
	return fmt.Errorf("a bound (--l2-size) of %d bytes would delete nearly all of the %d bytes that are there; remove generations first, or use a smaller step: %w", tc.L2Bytes, contentBytes, syscall.EINVAL)
}

func policyOf(tc TierConfig) retention.Policy {
	if tc.Retention == "recency" {
		return retention.NewRecency(tc.SupersedeGrace)
	}
	return retention.NewAdaptive(tc.SupersedeGrace, retention.DefaultCosts())
}

// diskEvent logs what goes wrong with stored data.
func (fs *FS) diskEvent(e pages.Event) {
	level := slog.LevelError
	if e.Kind == pages.EventReread || e.Kind == pages.EventTempLeft {
		level = slog.LevelInfo
	}
	fs.log.Log(context.Background(), level, "disk tier: "+string(e.Kind), "event", fmt.Sprintf("%+v", e))
}

// saveFirst makes new pages durable before they are published, under the write
// policy always.
func (fs *FS) saveFirst(ctx context.Context, fresh []evict.Unpublished) error {
	if fs.cfg.Tiers.WritePolicy != evict.WriteAlways {
		return nil
	}
	return fs.tiers.SaveUnpublished(ctx, fresh)
}

// saveAfter records and syncs what saveFirst has written.
func (fs *FS) saveAfter(g *index.Generation, c *index.Contents) {
	if fs.cfg.Tiers.WritePolicy != evict.WriteAlways {
		return
	}
	rows, err := fs.savedRows(c.Pages)
	if err == nil {
		err = fs.tiers.SaveGeneration(context.Background(), g, rows)
	}
	if err != nil {
		fs.log.Warn("a published generation may not survive a power loss yet", "generation", g.Name, "error", err)
	}
}

func (fs *FS) savedRows(ids []pages.ID) ([]*index.Page, error) {
	rows, err := fs.idx.Pages(ids)
	if err != nil {
		return nil, err
	}
	kept := rows[:0]
	for _, p := range rows {
		if p != nil {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// saveNode is fsync: everything below the node is on disk when it returns. In a
// staging nothing is promised before publication.
func (fs *FS) saveNode(n nodeID) error {
	var ids []pages.ID
	var whole *index.Generation
	switch {
	case n.kind() == kindPage:
		ids = []pages.ID{n.page()}
	case n.inGeneration():
		t, err := fs.treeOf(n)
		if err != nil || t.draft != nil {
			return err
		}
		c, err := fs.idx.Contents(t.gen)
		if err != nil {
			return err
		}
		ids = pagesBelow(c, n)
		if n.place().Level == staging.LevelRoot {
			whole = t.gen
		}
	}
	rows, err := fs.savedRows(ids)
	if err != nil {
		return err
	}
	began := fs.now()
	defer func() { fs.metrics.fsync.Observe(fs.now().Sub(began).Seconds()) }()
	if whole != nil {
		return fs.tiers.SaveGeneration(context.Background(), whole, rows)
	}
	return fs.tiers.Save(context.Background(), rows)
}

// pagesBelow lists the pages of a generation that are below one of its
// directories.
func pagesBelow(c *index.Contents, n nodeID) []pages.ID {
	p := n.place()
	if p.Level == staging.LevelRoot {
		return c.Pages
	}
	var ids []pages.ID
	for slot, id := range c.Pages {
		rank, group, _ := c.Layout.At(slot)
		if rank == p.Rank && (p.Level == staging.LevelRank || group == p.Group) {
			ids = append(ids, id)
		}
	}
	return ids
}

// reconcile does beside the service what no start waits for: the policy learns
// the generations, and disk and index are compared.
func (fs *FS) reconcile(ctx context.Context) {
	defer close(fs.reconciled)
	defer pages.LongSlice()()
	if err := fs.adoptRest(ctx); err != nil && ctx.Err() == nil {
		fs.log.Error("the pages in RAM could not all be taken up; they are at the next start", "error", err)
	}
	fs.tiers.Learn(ctx)
	fs.announceFit()
	fs.tiers.AskRoom(0)
	fs.tiers.FitDisk(ctx)
	if err := fs.tiers.Reconcile(ctx, fs.rebuild != ""); err != nil && ctx.Err() == nil {
		fs.log.Warn("the disk tier could not be looked through", "error", err)
	}
}

// isReconciled reports whether reconcile has come to its end.
func (fs *FS) isReconciled() bool {
	select {
	case <-fs.reconciled:
		return true
	default:
		return false
	}
}

// Stop ends the service in good order: stores under way finish, then what is
// only in RAM is written to disk, as far as ctx and the disk allow. It tells how
// many bytes could not be written that should be.
func (fs *FS) Stop(ctx context.Context) (unsavedBytes int64, err error) {
	fs.stopping.Store(true)
	began := fs.now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Minute)
	}
	budget := time.Until(deadline)
	fs.finishStores(min(budget/3, 5*time.Second))
	drained, cancel := context.WithTimeout(ctx, budget/4)
	err = fs.Drain(drained)
	cancel()
	f := fs.tiers.Flush(ctx)
	fs.log.Info("RAM is written to disk", "pages", f.Pages, "bytes", f.Bytes, "pages_left", f.Left, "bytes_left", f.LeftBytes, "took", fs.now().Sub(began).Round(time.Millisecond))
	if fs.cfg.Tiers.WritePolicy != evict.WriteNever {
		unsavedBytes = f.LeftBytes
	}
	return unsavedBytes, err
}

// finishStores waits until no staging is left and none came for half a second,
// or none came for three, or limit has passed.
func (fs *FS) finishStores(limit time.Duration) {
	end := time.Now().Add(limit)
	last, seen := time.Now(), fs.stage.Created()
	for time.Now().Before(end) {
		if n := fs.stage.Created(); n != seen {
			last, seen = time.Now(), n
		}
		quiet := time.Since(last)
		if fs.stage.Count() == 0 && (quiet > 500*time.Millisecond || seen == 0) || quiet > 3*time.Second {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
