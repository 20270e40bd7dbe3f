package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ckptfs/fusefs"
)

// busyGlance has more of everything than fits.
func busyGlance() glance {
	g := glance{at: time.Unix(1000, 0)}
	g.Mountpoint = "/mnt"
	g.Counters = map[string]int64{"pages_written": 40, "loaded_bytes": 1 << 20}
	for i := range 30 {
		w := writing{Model: fmt.Sprint("m", i), Identity: "0123456789abcdef", Name: "s"}
		g.Writing = append(g.Writing, w)
		g.Busiest = append(g.Busiest, fusefs.ModelUse{Model: fmt.Sprintf("model\x1b[2J%d", i), Lookups: 30, Hits: 20, FoundBytes: 3 << 20, Published: 5})
		g.held.Leases = append(g.held.Leases, fusefs.Lease{Path: "m/" + strings.Repeat("a", 40) + "/00000009-prompt-" + strings.Repeat("b", 40), Kind: "find",
			PID: 7, Command: "engine", AgeSeconds: 125, Bytes: 1 << 20})
	}
	return g
}

func TestTopFits(t *testing.T) {
	now := busyGlance()
	before := now
	before.at, before.Busiest = now.at.Add(-2*time.Second), nil
	before.Counters = map[string]int64{"pages_written": 20}
	for height := 14; height < 60; height++ {
		text := topText(before, now, screen{width: 70, height: height})
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(lines) > height || height >= 24 && len(lines) < height {
			t.Errorf("%d lines on a screen of %d:\n%s", len(lines), height, text)
		}
		for _, line := range lines {
			if len([]rune(line)) > 70 || strings.Contains(line, "\x1b") {
				t.Errorf("a line %q", line)
			}
		}
	}
	text := topText(before, now, screen{height: 200})
	for _, want := range []string{
		"pages written 10.0/s (40)", "writing  m29/01234567/s  no manifest yet\n",
		"model    model?[2J0  15.0 lookups/s, 10.0 hits/s (20 of 30), 1.5 MiB/s found, 2.5 stored/s (5)\n",
		"lease    2m5s  engine (pid 7)  find m/aaaaaaaa/00000009-prompt-bbbbbbbb  1.0 MiB\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "more") {
		t.Errorf("something is cut where all fits:\n%s", text)
	}
	if cut := topText(before, now, screen{height: 24}); strings.Count(cut, "more\n") != 3 {
		t.Errorf("it does not say what is missing:\n%s", cut)
	}
}
