package main

import (
	"fmt"
	"strings"
	"time"

	"ckptfs/fusefs"
)

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
	{"evicted", []string{"evicted_bytes", "evicted_pages", "dropped_pressure_bytes"}},
	{"retired", []string{"generations_deleted", "generations_retired", "stagings_discarded"}},
}

// topText is one picture.
func topText(before, now glance, s screen) string {
	seconds := now.at.Sub(before.at).Seconds()
	lines := topHead(before, now, seconds)
	lines = append(lines, shareOut(s.height-len(lines), now.writingLines(), modelLines(before, now, seconds), now.leaseLines())...)
	for i, line := range lines {
		r := []rune(printable(line))
		if s.width > 0 {
			r = r[:min(len(r), s.width)]
		}
		lines[i] = string(r)
	}
	return strings.Join(lines, "\n") + "\n"
}

// topHead is what is always shown.
func topHead(before, now glance, seconds float64) []string {
	var b strings.Builder
	writeProblems(&b, now.mountStatus)
	fmt.Fprintf(&b, "%s  ckptfs %s  up %s  daemon %d  %s\n\n", now.Mountpoint, now.Version, uptime(now.UptimeSeconds), now.PID,
		now.at.Format(time.TimeOnly))
	fmt.Fprintf(&b, "RAM      %s  %s\n", fillBar(now.RAM), now.RAM)
	fmt.Fprintf(&b, "disk     %s  %s\n", fillBar(now.Disk), now.Disk)
	for _, line := range topRates {
		if text := rates(before, now, line.names, seconds); text != "" {
			fmt.Fprintf(&b, "%-8s %s\n", line.label, text)
		}
	}
	fmt.Fprintf(&b, "holds    %s\n", now.holds())
	fmt.Fprintf(&b, "open     %s", now.open())
	return strings.Split(b.String(), "\n")
}

// shareOut takes as many lines of the sections as there is room for, of each an equal share; what one does not need the
// next ones get. A section that is cut says how much is missing.
func shareOut(room int, sections ...[]string) (lines []string) {
	for i, section := range sections {
		share := max(room-len(lines), 0) / (len(sections) - i)
		if len(section) > share {
			more := len(section) - share + 1
			section = section[:max(share-1, 0)]
			if share > 0 {
				section = append(section[:len(section):len(section)], fmt.Sprintf("         and %d more", more))
			}
		}
		lines = append(lines, section...)
	}
	return lines
}

// topRanks is how many ranks of a staging are shown one by one.
const topRanks = 16

// writingLines has the stagings, and how far each rank is.
func (s mountStatus) writingLines() (lines []string) {
	for _, w := range s.Writing {
		lines = append(lines, w.String())
	}
	return lines
}

// String is the line of a staging.
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

// modelLines has the models that are used most.
func modelLines(before, now glance, seconds float64) (lines []string) {
	was := map[string]fusefs.ModelUse{}
	for _, m := range before.Busiest {
		was[m.Model] = m
	}
	for _, m := range now.Busiest {
		old := was[m.Model]
		if old.Lookups > m.Lookups || old.Published > m.Published { // a new daemon, or it was not among the busiest
			old = fusefs.ModelUse{}
		}
		rate := func(n, before int64) float64 { return float64(n-before) / seconds }
		lines = append(lines, fmt.Sprintf("model    %s  %.1f lookups/s, %.1f hits/s (%d of %d), %s/s found, %.1f stored/s (%d)", m.Model,
			rate(m.Lookups, old.Lookups), rate(m.Hits, old.Hits), m.Hits, m.Lookups,
			sizeValue(rate(m.FoundBytes, old.FoundBytes)).people(), rate(m.Published, old.Published), m.Published))
	}
	return lines
}

// leaseLines has the leases that have been held longest.
func (g glance) leaseLines() (lines []string) {
	for _, l := range g.held.Leases {
		who := l.Command
		if who == "" {
			who = "?"
		}
		lines = append(lines, fmt.Sprintf("lease    %s  %s (pid %d)  %s %s  %s", uptime(float64(l.AgeSeconds)), who, l.PID, l.Kind,
			shortPath(l.Path), sizeValue(l.Bytes).people()))
	}
	return lines
}

// shortPath shortens the digests in a path to what tells them apart for people.
func shortPath(path string) string {
	names := strings.Split(path, "/")
	for i, name := range names {
		if cut := strings.LastIndexByte(name, '-') + 1; len(name)-cut == 40 {
			names[i] = name[:cut+8]
		}
	}
	return strings.Join(names, "/")
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
