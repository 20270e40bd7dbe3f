package fusefs

import (
	"context"
	"time"
)

// checkpointEvery is the pause between two looks at the index's log. What is
// committed in it under load is a few megabytes.
const checkpointEvery = 2 * time.Second

// checkpoint keeps the index's log short. It has a goroutine of its own, for it
// waits for the disk.
func (fs *FS) checkpoint(ctx context.Context) {
	t := time.NewTicker(checkpointEvery)
	defer t.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := fs.idx.Checkpoint()
		if err != nil && !failed {
			fs.log.Warn("the index's log cannot be shortened now; it is tried again", "error", err)
		}
		failed = err != nil
	}
}
