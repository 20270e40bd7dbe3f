package evict

import (
	"context"
	"fmt"
	"syscall"
	"testing"
)

// TestDropRAM: whatever the disk does, RAM is emptied of what is on disk, and
// nothing is retired or lost.
func TestDropRAM(t *testing.T) {
	ctx := context.Background()
	for n := 0; ; n++ {
		steps := 0
		ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newStore(t, 200*storePage)
			if n == 1 {
				s.kill()
				s.l2 = 60 * storePage // too little
				s.open()
			}
			for c := range 3 {
				s.publish(c, 10)
				s.publish(c, 18)
			}
			if n > 1 {
				s.steps.arm(13*(n-1), syscall.EIO, n%2 == 0)
			}
			told := 0
			d, err := s.DropRAM(ctx, func(DroppedRAM) { told++ })
			steps, _ = s.steps.disarm()
			left := s.Resident()
			switch {
			case told == 0 || d.Of == 0 || d.Dropped+d.Leased+d.Unwritten != d.Of && err == nil:
				t.Errorf("told %d times; %+v, %v", told, d, err)
			case left != d.Leased+d.Unwritten && err == nil:
				t.Errorf("%d pages are in RAM, %+v", left, d)
			case n == 0 && (d.Dropped != d.Of || err != nil):
				t.Errorf("a disk that works: %+v, %v", d, err)
			case n == 1 && (d.Unwritten == 0 || d.Dropped == 0):
				t.Errorf("a disk tier that is too small: %+v", d)
			}
			if gens, err := s.readAll(); gens != 6 || err != nil {
				t.Errorf("%d of 6 generations can be read: %v", gens, err)
			}
			s.sweepBlobs(ctx, 1000)
			s.check()
		})
		if !ok || n > 1 && steps < 13*(n-1) || testing.Short() && n == 3 {
			return
		}
	}
}
