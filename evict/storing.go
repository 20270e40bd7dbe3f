package evict

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ckptfs/index"
	"ckptfs/pages"
)

// storing says how a page is written to the disk tier.
type storing struct {
	durable bool                           // it survives power loss when that is done
	room    bool                           // generations may be retired for it if the tier is full
	again   bool                           // whatever has failed lately
	margin  int64                          // bytes of the tier that have to stay free; only without room
	on      func(*resident) index.ObjectID // on whose behalf a page is written (see diskRoom); nil: nobody knows
	count   *atomic.Int64                  // of Counts: why it is written
}

func (s storing) onBehalf(e *resident) index.ObjectID {
	if s.on == nil {
		return 0
	}
	return s.on(e)
}

// errNotInRAM says that a page to be written is not in RAM any more.
var errNotInRAM = errors.New("not in RAM any more")

// store writes a page that is in RAM, on behalf of a generation. errNotInRAM, or what the disk says.
func (t *Tiers) store(ctx context.Context, id pages.ID, key pages.Key, bytes int64, how storing, on index.ObjectID) (stored int64, err error) {
	f, err := t.RAM.Open(id)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNotInRAM, err)
	}
	defer f.Close()
	if err := t.marginLeft(bytes, how); err != nil {
		return 0, err
	}
	done := t.health.begin(WorkWriteBack)
	stored, err = t.Disk.Put(ctx, key, f, bytes, how.durable)
	if diskFull(err) && how.room && t.diskRoom(ctx, bytes, on) {
		stored, err = t.Disk.Put(ctx, key, f, bytes, how.durable)
	}
	if took := done(err); err == nil {
		t.took(WorkWriteBack, took)
		how.count.Add(bytes)
		t.Counts.StoredBytes.Add(stored)
	}
	return stored, err
}

// marginLeft refuses a write that would take what has to stay free.
func (t *Tiers) marginLeft(bytes int64, how storing) error {
	if how.room || how.margin == 0 {
		return nil
	}
	switch ofBound, ofDisk, err := t.Disk.Missing(bytes + how.margin); {
	case err != nil:
		return err
	case ofBound > 0:
		return pages.ErrDiskBound
	case ofDisk > 0:
		return pages.ErrDiskMinFree
	}
	return nil
}
