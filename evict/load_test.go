package evict

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ckptfs/index"
	"ckptfs/pages"
)

// TestPrefetchInTurn: ranks ask for their pages all at the same time, so none
// waits until the pages of those before it are there.
func TestPrefetchInTurn(t *testing.T) {
	m := &index.Manifest{Groups: []index.Group{{Name: "a", Role: index.RoleAttention, PageTokens: 1, PageBytes: 1, Positions: []uint32{0, 1, 2}}}}
	l := m.Layout(3)
	slots := []int{0, 2, 4, 5, 6} // of the ranks: 0 2, 1 2, 0
	var asked []int
	for _, n := range inTurn(l, slots) {
		asked = append(asked, slots[n])
	}
	if want := []int{0, 6, 4, 2, 5}; !slices.Equal(asked, want) {
		t.Errorf("brought in the order %v, want %v", asked, want)
	}
}

// TestReadsAtATime: however many pages are opened at the same time that RAM does
// not have, a fixed number of them is read from disk at a time; the others wait.
func TestReadsAtATime(t *testing.T) {
	s := newStore(t, 1<<20)
	g := s.publish(1, 8)
	_, err := s.DropRAM(context.Background(), func(DroppedRAM) {})
	s.must(err)
	c, err := s.idx.Contents(g)
	s.must(err)
	rows, err := s.idx.Pages(c.Pages)
	s.must(err)
	bound := readsAtATime(s.Loaders)
	if len(rows) <= bound {
		t.Fatalf("%d pages are not more than %d", len(rows), bound)
	}

	var opened atomic.Int64
	full, all := make(chan struct{}), make(chan struct{})
	s.steps.hold = func(step pages.Step) {
		if step != pages.StepOpen {
			return
		}
		if n := opened.Add(1); n == int64(bound) {
			close(full)
		}
		<-all
	}
	var wg sync.WaitGroup
	errs := make([]error, len(rows))
	for i, p := range rows {
		wg.Go(func() { errs[i] = s.read(p) })
	}
	<-full
	for s.reading.Load() < int64(len(rows)) { // until each waits for its turn or for the disk
		runtime.Gosched()
	}
	if n := opened.Load(); n != int64(bound) {
		t.Errorf("%d pages are read at a time, want %d", n, bound)
	}
	close(all)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("page %d: %v", i, err)
		}
	}
}

// TestRetiredWhileLoaded: a page whose generation goes while a lookup has it
// brought to RAM leaves nothing there.
func TestRetiredWhileLoaded(t *testing.T) {
	s := newStore(t, 100*storePage)
	g := s.publish(1, 4)
	s.Flush(context.Background())
	s.MakeRoom(context.Background(), 100*storePage)
	c, err := s.idx.Contents(g)
	s.must(err)
	rows, err := s.idx.Pages(c.Pages)
	s.must(err)
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.steps.hold = func(step pages.Step) {
		if step == pages.StepRead {
			once.Do(func() { close(began); <-goOn })
		}
	}
	s.hints.want(rows[0].ID, g.ID, false)
	loaded := make(chan struct{})
	go func() { s.bringOne(context.Background(), rows[0]); close(loaded) }()
	<-began
	s.must(s.retire([]*index.Generation{g}, "a test"))
	close(goOn)
	<-loaded
	s.quiet()
	if held, reserved := s.Budget.Usage(); held+reserved != 0 || s.Resident() != 0 {
		t.Errorf("%d bytes are held, %d reserved, %d pages in RAM", held, reserved, s.Resident())
	}
	s.check()
}

// TestLostWhileRAMIsFull: a page whose object is not there is lost for an open
// that finds no room in RAM too.
func TestLostWhileRAMIsFull(t *testing.T) {
	s := newStore(t, 100*storePage)
	g := s.publish(1, 4)
	s.Flush(context.Background())
	s.MakeRoom(context.Background(), 100*storePage)
	rows, err := s.rowsOf(g)
	s.must(err)
	s.must(s.disk.Remove(rows[0].Key))
	s.must(s.Budget.Reserve(context.Background(), 100*storePage, func(int64) {}))
	if err := s.read(rows[0]); !errors.Is(err, ErrPageLost) {
		t.Errorf("reading it gave %v", err)
	}
	if s.published(g) {
		t.Error("its generation is still published")
	}
	s.Budget.Unreserve(100 * storePage)
	s.check()
}

// TestDeletedWhileOpened: a page that is deleted while it is opened is not there,
// which is no loss.
func TestDeletedWhileOpened(t *testing.T) {
	s := newStore(t, 100*storePage)
	g := s.publish(1, 4)
	s.Flush(context.Background())
	s.MakeRoom(context.Background(), 100*storePage)
	rows, err := s.rowsOf(g)
	s.must(err)
	s.must(s.retire([]*index.Generation{g}, "a test")) // the opener has looked its row up before
	if err := s.read(rows[0]); !errors.Is(err, syscall.ENOENT) || s.Counts.LostPages.Load() != 0 {
		t.Errorf("opening it gave %v", err)
	}
	s.check()
}

// TestOpenedWhileItIsDeleted: a page that is opened when its row and its bytes in
// RAM have gone, but not yet its object, leaves nothing behind.
func TestOpenedWhileItIsDeleted(t *testing.T) {
	s := newStore(t, 100*storePage)
	g := s.publish(1, 4)
	s.Flush(context.Background())
	s.MakeRoom(context.Background(), 100*storePage)
	rows, err := s.rowsOf(g)
	s.must(err)
	s.Live.removed = func(id pages.ID, charge int64, row *index.Page) { // as forget does
		s.forgetRAM(id, charge, false)
		if s.Live.Open(id, row.Bytes) {
			s.Live.removed = s.forget
			if _, err := s.Bring(context.Background(), row); !errors.Is(err, syscall.ENOENT) {
				t.Errorf("opening it gave %v", err)
			}
			s.Live.Close(id)
		}
		s.removeObject(row.Key)
	}
	s.must(s.retire([]*index.Generation{g}, "a test"))
	for _, p := range rows {
		if s.hasFile(p.ID) {
			t.Errorf("page %d is left in RAM", p.ID)
		}
	}
	s.check()
}
