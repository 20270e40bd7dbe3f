package evict

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

func wantUsage(t *testing.T, b *Budget, held, reserved int64) {
	t.Helper()
	if h, r := b.Usage(); h != held || r != reserved {
		t.Fatalf("held %d, reserved %d; want %d and %d", h, r, held, reserved)
	}
}

func TestBudgetMoves(t *testing.T) {
	b := NewBudget(100)
	noRoom := func(int64) { t.Error("room was asked for though there was some") }
	if err := b.Reserve(t.Context(), 60, noRoom); err != nil {
		t.Fatal(err)
	}
	b.Fill(40)
	wantUsage(t, b, 40, 20)
	b.Unfill(10)
	wantUsage(t, b, 30, 30)
	b.Unreserve(30)
	b.Free(30)
	wantUsage(t, b, 0, 0)
}

func TestBudgetTooLarge(t *testing.T) {
	b := NewBudget(100)
	err := b.Reserve(t.Context(), 101, func(int64) { t.Error("something was evicted for what can never fit") })
	if !errors.Is(err, ErrTooLarge) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
}

func TestBudgetMakesRoom(t *testing.T) {
	b := NewBudget(100)
	b.Hold(90)
	err := b.Reserve(t.Context(), 50, func(missing int64) {
		if missing != 40 {
			t.Errorf("%d bytes are said to be missing, want 40", missing)
		}
		b.Free(missing)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantUsage(t, b, 50, 50)
}

// TestBudgetWaits: a reservation that cannot be had now holds nothing while it
// waits, and goes on when bytes return.
func TestBudgetWaits(t *testing.T) {
	b := NewBudget(100)
	b.Hold(80)
	asked := make(chan struct{}, 8)
	done := make(chan error)
	go func() {
		done <- b.Reserve(t.Context(), 50, func(int64) { asked <- struct{}{} })
	}()
	<-asked
	wantUsage(t, b, 80, 0)
	b.Free(80)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantUsage(t, b, 0, 50)
}

func TestBudgetGivesUp(t *testing.T) {
	b := NewBudget(100)
	b.Hold(80)
	ctx, cancel := context.WithCancel(t.Context())
	err := b.Reserve(ctx, 50, func(int64) { cancel() })
	if !errors.Is(err, ErrNoRoom) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	wantUsage(t, b, 80, 0)
}

func TestBudgetKicksAboveTheMark(t *testing.T) {
	b := NewBudget(100)
	kicks := 0
	b.setKick(60, func() { kicks++ })
	for range 3 {
		if err := b.Reserve(t.Context(), 30, func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	if kicks != 1 {
		t.Fatalf("%d kicks, want 1: only the third reservation passes the mark", kicks)
	}
}
