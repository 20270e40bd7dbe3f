package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const topUsage = "top [--once] [--every DURATION] MOUNT"

const topAbout = `Shows a mount live: what is wrong first, the tiers' fill, how much is stored, read, looked up, evicted per second, what
is open and what is being written. Ctrl-C ends it.

It reads MOUNT/.ckptfs/status.json, which is for root only. Rates are over the time since the last look; with --once
they are over one interval.`

// clearScreen goes home and clears to the end of the screen: the least that every terminal knows.
const clearScreen = "\x1b[H\x1b[J"

func runTop(ctx context.Context, args []string, io streams) error {
	fs := newFlags(io, topUsage, topAbout)
	once := fs.Bool("once", false, "print it once, without clearing the screen")
	every := fs.Duration("every", time.Second, "how often to look")
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	if *every < 10*time.Millisecond {
		return withCode(exitUsage, fmt.Errorf("--every %v is too often; 100ms is the least that a person can read", *every))
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	before, err := look(fs.Arg(0))
	if err != nil {
		return err
	}
	ticker := time.NewTicker(*every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := look(fs.Arg(0))
		if err != nil {
			return err
		}
		text := topText(before, now)
		if !*once {
			text = clearScreen + text
		}
		if _, err := fmt.Fprint(io.out, text); err != nil || *once {
			return err
		}
		before = now
	}
}

// glance is a status at a time.
type glance struct {
	mountStatus
	at time.Time
}

func look(mount string) (glance, error) {
	text, err := readStatus(mount)
	if err != nil {
		return glance{}, err
	}
	g := glance{at: time.Now()}
	if err := json.Unmarshal(text, &g.mountStatus); err != nil {
		return g, fmt.Errorf("%s: status.json: %w", mount, err)
	}
	return g, nil
}

// topRates are the lines of rates: counters that belong together. A name that this daemon does not count is left out.
var topRates = []struct {
	label string
	names []string
}{
	{"stores", []string{"pages_written", "generations_published", "publish_busy"}},
	{"reads", []string{"page_opens", "bytes_read_ordinary", "uncached_opens"}},
	{"lookups", []string{"lookups", "lookup_misses"}},
	{"to disk", []string{"disk_written_bytes", "disk_written_pages", "disk_write_failures"}},
	{"to RAM", []string{"loaded_bytes", "loaded_pages"}},
	{"evicted", []string{"evicted_bytes", "evicted_pages", "dropped_unwritten_bytes"}},
	{"retired", []string{"generations_deleted", "generations_retired", "stagings_discarded"}},
}

// topText is one picture.
func topText(before, now glance) string {
	var b strings.Builder
	writeProblems(&b, now.mountStatus)
	fmt.Fprintf(&b, "%s  ckptfs %s  up %s  daemon %d  %s\n\n", now.Mountpoint, now.Version, uptime(now.UptimeSeconds), now.PID,
		now.at.Format(time.TimeOnly))
	fmt.Fprintf(&b, "RAM      %s  %s\n", fillBar(now.RAM), now.RAM)
	fmt.Fprintf(&b, "disk     %s  %s\n\n", fillBar(now.Disk), now.Disk)
	seconds := now.at.Sub(before.at).Seconds()
	for _, line := range topRates {
		if text := rates(before, now, line.names, seconds); text != "" {
			fmt.Fprintf(&b, "%-8s %s\n", line.label, text)
		}
	}
	fmt.Fprintf(&b, "\nholds    %d generations in %d identities of %d models; %d being written\n",
		now.Generations, now.Identities, now.Models, now.Stagings)
	fmt.Fprintf(&b, "open     %d of %d handles: %d pages, %d lookups\n", now.Handles.Open, now.Handles.Max, now.Handles.Pages, now.Handles.Find)
	for _, w := range now.Writing {
		fmt.Fprintf(&b, "%s\n", w)
	}
	return b.String()
}

// topRanks is how many ranks of a staging are shown one by one.
const topRanks = 16

// String is a line of top: the staging, and how far each rank is.
func (w writing) String() string {
	text := fmt.Sprintf("writing  %s/%.8s/%s ", w.Model, w.Identity, w.Name)
	if len(w.Ranks) == 0 {
		text += " no manifest yet"
	}
	for _, r := range w.Ranks[:min(len(w.Ranks), topRanks)] {
		text += fmt.Sprintf(" %d/%d", r.Pages, r.Of)
	}
	if more := len(w.Ranks) - topRanks; more > 0 {
		text += fmt.Sprintf(" and %d ranks more", more)
	}
	if w.Seconds > 0 {
		text += fmt.Sprintf("; idle for %s", uptime(float64(w.Seconds)))
	}
	return text
}

// rates gives what counters count per second, and their totals.
func rates(before, now glance, names []string, seconds float64) string {
	var parts []string
	for _, name := range names {
		total, ok := now.Counters[name]
		if !ok {
			continue
		}
		rate := max(0, float64(total-before.Counters[name])/seconds) // a new daemon counts from 0
		label := strings.ReplaceAll(name, "_", " ")
		if strings.Contains(name, "bytes") {
			parts = append(parts, fmt.Sprintf("%s %s/s (%s)", label, sizeValue(rate).people(), sizeValue(total).people()))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %.1f/s (%d)", label, rate, total))
	}
	return strings.Join(parts, ", ")
}

// fillBar draws how full a tier is; reserved bytes are dots.
func fillBar(t tierStatus) string {
	const width = 30
	if t.SizeBytes <= 0 {
		return "[" + strings.Repeat(" ", width) + "]"
	}
	part := func(bytes int64) int { return int(min(max(bytes, 0)*width/t.SizeBytes, width)) }
	used := part(t.UsedBytes)
	reserved := max(part(t.UsedBytes+t.ReservedBytes)-used, 0)
	return "[" + strings.Repeat("#", used) + strings.Repeat(".", reserved) + strings.Repeat(" ", width-used-reserved) + "]"
}
