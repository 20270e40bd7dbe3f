package fusefs

import (
	"context"
	"errors"
	"fmt"

	"ckptfs/evict"
)

// DropRAMReport tells how emptying the RAM tier went.
type DropRAMReport struct {
	evict.DroppedRAM
	Staged  int64     `json:"staged_bytes"` // of stagings, which stay
	Holders LeaseList `json:"holders"`      // some of those who keep pages in RAM
}

// dropRAM writes what is only in RAM to disk and empties the RAM tier.
func (fs *FS) dropRAM(ctx context.Context, tell func(DropRAMReport)) error {
	report := func(d evict.DroppedRAM) DropRAMReport {
		return DropRAMReport{DroppedRAM: d, Holders: LeaseList{Leases: []Lease{}}}
	}
	d, err := fs.tiers.DropRAM(ctx, func(d evict.DroppedRAM) { tell(report(d)) })
	r := report(d)
	r.Staged = fs.stage.StagedBytes()
	if d.Leased > 0 {
		r.Holders = fs.Leases(maxHolders)
	}
	tell(r)
	switch {
	case err != nil:
		return err
	case d.Unwritten > 0 && fs.cfg.Tiers.WritePolicy == evict.WriteNever:
		return refusal{CodeFailed, errors.New("--write-policy=never: what has no copy on disk stays in RAM")}
	case d.Unwritten > 0:
		err := errors.New("the log says why")
		for _, t := range fs.tiers.Troubles() {
			err = t.Err
		}
		return refusal{CodeFailed, fmt.Errorf("not all could be written to disk, the rest stays in RAM: %w", err)}
	}
	return nil
}
