package evict

import (
	"context"
	"errors"
	"os"
	"testing"

	"ckptfs/pages"
)

// TestBadWhileInRAM: an object that turns out to be bad while its page is in RAM
// again is not what the page is left to; where RAM does not have it, it is lost.
func TestBadWhileInRAM(t *testing.T) {
	for _, inRAM := range []bool{true, false} {
		s := newStore(t, 100*storePage)
		g := s.publish(1, 8)
		s.Flush(context.Background())
		rows, err := s.rowsOf(g)
		s.must(err)
		if !inRAM {
			s.MakeRoom(context.Background(), 100*storePage)
		}
		f, err := os.OpenFile(s.disk.ObjectPath(rows[0].Key), os.O_WRONLY, 0)
		s.must(err)
		_, err = f.WriteAt(make([]byte, storePage), 4096)
		s.must(err)
		s.must(f.Close())
		o, err := s.disk.OpenObject(rows[0].Key) // by an open that found no room in RAM
		s.must(err)
		if _, err := o.ReadAt(make([]byte, storePage), 0); !errors.Is(err, pages.ErrLost) {
			t.Fatalf("reading a bad object gave %v", err)
		}
		s.must(o.Close())
		s.followBad()
		s.MakeRoom(context.Background(), 100*storePage)
		if s.published(g) != inRAM {
			t.Errorf("in RAM: %v; published: %v", inRAM, !inRAM)
		}
		if _, err := s.readAll(); err != nil {
			t.Error(err)
		}
		s.sweepBlobs(context.Background(), 100)
		s.check()
	}
}
