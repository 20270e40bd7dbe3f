package evict

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"ckptfs/pages"
)

func TestHealth(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHealth(func() time.Time { return now })
	want := func(what string, works ...Work) []Trouble {
		t.Helper()
		list := h.troubles()
		if len(list) != len(works) {
			t.Fatalf("%s: %v, want %v", what, list, works)
		}
		for i, w := range works {
			if list[i].Work != w {
				t.Errorf("%s: %v, want %v", what, list, works)
			}
		}
		return list
	}
	for _, err := range []error{nil, context.Canceled, pages.ErrLost, pages.ErrAbsent} {
		h.begin(WorkWriteBack)(err)
	}
	h.begin(WorkLoad)(syscall.ENOSPC) // of the RAM tier
	want("what is no trouble")

	h.begin(WorkWriteBack)(syscall.EIO)
	began := now
	now = now.Add(time.Minute)
	h.begin(WorkWriteBack)(syscall.ENOSPC)
	h.begin(WorkLoad)(nil) // reading still works, and does not hide it
	if l := want("two writes that failed", WorkWriteBack)[0]; l.Since != began || !errors.Is(l.Err, syscall.ENOSPC) {
		t.Errorf("%+v", l)
	}
	h.begin(WorkWriteBack)(nil)
	want("a write that did not")

	done := h.begin(WorkLoad)
	now = now.Add(hungAfter - 1)
	want("a slow read")
	now = now.Add(1)
	if l := want("a read that hangs", WorkLoad)[0]; !errors.Is(l.Err, ErrHung) || now.Sub(l.Since) != hungAfter {
		t.Errorf("%+v", l)
	}
	if took := done(nil); took != hungAfter {
		t.Errorf("it took %v", took)
	}
	want("it has come back")
}

// TestProbe: trouble ends when the disk works again, though nobody reads and
// writes pages meanwhile.
func TestProbe(t *testing.T) {
	ctx := context.Background()
	s := newStore(t, 40*storePage)
	s.publish(0, 10)
	s.steps.arm(1, syscall.EIO, true)
	s.MakeRoom(ctx, 30*storePage)
	if l := s.Troubles(); len(l) != 1 || l[0].Work != WorkWriteBack || !errors.Is(l[0].Err, syscall.EIO) {
		t.Fatalf("while no write succeeds: %v", l)
	}
	s.probe(ctx)
	if l := s.Troubles(); len(l) != 2 {
		t.Errorf("when the probe fails too: %v", l)
	}
	s.steps.disarm()
	before, err := s.disk.ReadBlob(startsBlob)
	s.must(err)
	s.probe(ctx)
	if l := s.Troubles(); len(l) != 0 {
		t.Errorf("afterwards: %v", l)
	}
	if after, err := s.disk.ReadBlob(startsBlob); err != nil || string(after) != string(before) {
		t.Errorf("the probe has changed the tier: %q, %q, %v", before, after, err)
	}

	s.must(s.disk.RemoveBlob(startsBlob)) // as if the start could not write it
	s.steps.arm(1, syscall.EIO, true)
	s.MakeRoom(ctx, 40*storePage)
	s.probe(ctx)
	s.steps.disarm()
	s.probe(ctx)
	if l := s.Troubles(); len(l) != 0 {
		t.Errorf("where there was nothing to read: %v", l)
	}
	if after, err := s.disk.ReadBlob(startsBlob); err != nil || string(after) != string(before) {
		t.Errorf("the probe has counted the starts: %q, %q, %v", before, after, err)
	}
	s.check()
}
