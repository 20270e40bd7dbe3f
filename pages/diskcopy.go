package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// CopyTo writes the page to dst, an empty page file of the RAM tier, at the
// same offsets, every block verified before it is written. It returns the
// page's length. After an error dst holds a part and is the caller's to remove:
// ErrAbsent or ErrLost, trouble with the disk, or an error of dst.
//
// Several reads are in flight at once, so the disk works while blocks are
// checked, decoded and copied.
func (d *Disk) CopyTo(ctx context.Context, key Key, dst io.WriterAt) (rawBytes int64, err error) {
	o, err := d.open(key, true, false)
	if err != nil {
		return 0, fmt.Errorf("read %v: %w", key, err)
	}
	defer o.Close()
	err = o.each(ctx, func(i int, raw []byte) error {
		_, err := dst.WriteAt(raw, int64(i)*o.h.blockBytes)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read %v: %w", key, err)
	}
	return o.h.rawBytes, nil
}

// Verify reads the whole object and checks it. Errors as for CopyTo.
func (d *Disk) Verify(ctx context.Context, key Key) error {
	o, err := d.open(key, true, false)
	if err == nil {
		err = errors.Join(o.each(ctx, func(int, []byte) error { return nil }), o.Close())
	}
	if err != nil {
		return fmt.Errorf("verify %v: %w", key, err)
	}
	return nil
}

// each calls f for every unit, as visit does, from CopyParallel goroutines, and
// returns the first error.
func (o *Object) each(ctx context.Context, f func(i int, raw []byte) error) error {
	var units []int // the first block of each, and the end
	for i := 0; i < len(o.h.blocks); i = o.unitEnd(i, len(o.h.blocks)) {
		units = append(units, i)
	}
	units = append(units, len(o.h.blocks))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	work := func() {
		defer LongSlice()()
		for {
			u := int(next.Add(1)) - 1
			if u >= len(units)-1 {
				return
			}
			if err := o.visit(ctx, units[u], units[u+1], f); err != nil {
				cancel(err)
				return
			}
		}
	}
	var wg sync.WaitGroup
	for range min(o.d.cfg.CopyParallel, len(units)-1) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return context.Cause(ctx)
}
