package main

import (
	"errors"
	"testing"
)

// TestRefusalsAreLines: a name in a backup makes no line of its own, and does nothing to a terminal.
func TestRefusalsAreLines(t *testing.T) {
	var r refusals
	r.add("model/new\nrefused other: \x1b[31m", errors.New("first\nsecond"))
	r.add("a", errors.New("b"))
	got := r.lines()
	if len(got) != 2 || got[0] != "a: b" || got[1] != "model/new?refused other: ?[31m: first; second" {
		t.Errorf("the lines are %q", got)
	}
}
