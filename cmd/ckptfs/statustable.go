package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	// statusProblems is how many problems are shown before "and more".
	statusProblems = 6
	// statusCounterRows keeps the whole table on a screen of 24 lines.
	statusCounterRows = 8
	statusColumns     = 2
)

// writeStatus prints the table for people. What is wrong comes first.
func writeStatus(out io.Writer, s mountStatus) error {
	var b strings.Builder
	writeProblems(&b, s)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "mount\t%s, ckptfs %s, up %s\n", s.Mountpoint, s.Version, uptime(s.UptimeSeconds))
	fmt.Fprintf(w, "state\t%s\n", s.StateDir)
	fmt.Fprintf(w, "processes\tdaemon %d, keeper %d, %s, %s\n", s.PID, s.KeeperPID, count(s.Restarts, "restart"),
		ofMost(int64(s.Files.Open), int64(s.Files.Max), "descriptors"))
	fmt.Fprintf(w, "mode\t%s\n", s.Mode)
	fmt.Fprintf(w, "RAM\t%s\n", s.RAM)
	fmt.Fprintf(w, "disk\t%s\n", s.Disk)
	fmt.Fprintf(w, "holds\t%s\n", s.holds())
	fmt.Fprintf(w, "writing\t%s\n", ofMost(int64(s.Stagings), int64(s.StagingsMax), "stagings"))
	fmt.Fprintf(w, "open\t%s\n", s.open())
	if err := w.Flush(); err != nil {
		return err
	}
	writeCounters(&b, s.Counters)
	_, err := io.WriteString(out, b.String())
	return err
}

// holds says what there is.
func (s mountStatus) holds() string {
	return fmt.Sprintf("%s in %s of %s; %d pinned", ofMost(int64(s.Generations), int64(s.GenerationsMax), "generations"),
		identities(s.Identities), count(s.Models, "model"), s.Pins)
}

func identities(n int) string {
	if n == 1 {
		return "1 identity"
	}
	return fmt.Sprintf("%d identities", n)
}

// open says what clients have open.
func (s mountStatus) open() string {
	l := s.Leases
	return fmt.Sprintf("%s; leases: %d pages, %d directories, %d lookups, %d stagings",
		ofMost(s.Handles.Open, s.Handles.Max, "handles"), l.Pages, l.Directories, l.Finds, l.Stagings)
}

// ofMost is how much of a limit is used; a limit of 0 is not known.
func ofMost(n, limit int64, what string) string {
	if limit == 0 {
		return fmt.Sprintf("%d %s", n, what)
	}
	return fmt.Sprintf("%d of %d %s", n, limit, what)
}

func writeProblems(b *strings.Builder, s mountStatus) {
	for _, problem := range s.Problems[:min(len(s.Problems), statusProblems)] {
		fmt.Fprintf(b, "PROBLEM: %s\n", problem)
	}
	if more := len(s.Problems) - statusProblems; more > 0 {
		fmt.Fprintf(b, "PROBLEM: and %d more; --json lists all\n", more)
	}
	if len(s.Problems) > 0 {
		b.WriteByte('\n')
	}
}

// writeCounters prints the counters that are not zero, in columns read downwards.
func writeCounters(b *strings.Builder, counters map[string]int64) {
	names := slices.Sorted(maps.Keys(counters))
	names = slices.DeleteFunc(names, func(name string) bool { return counters[name] == 0 })
	if len(names) == 0 {
		return
	}
	hidden := max(0, len(names)-statusCounterRows*statusColumns)
	names = names[:len(names)-hidden]
	rows := (len(names) + statusColumns - 1) / statusColumns
	b.WriteByte('\n')
	for row := range rows {
		line := ""
		for i := row; i < len(names); i += rows {
			line += fmt.Sprintf("%-26s%10d    ", strings.ReplaceAll(names[i], "_", " "), counters[names[i]])
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if hidden > 0 {
		fmt.Fprintf(b, "and %d more counters; --json lists all\n", hidden)
	}
}

// String says in words how page bytes move and where they are.
func (m statusMode) String() string {
	words := []string{"page bytes bypass the daemon"}
	if !m.Passthrough {
		words[0] = "page bytes go through the daemon"
		if m.PassthroughReason != "" {
			words[0] += " (" + m.PassthroughReason + ")"
		}
	}
	switch m.RAMTier {
	case "tmpfs":
		words = append(words, "own tmpfs")
	case "shm":
		words = append(words, "RAM in /dev/shm")
	}
	if m.HugePages {
		words = append(words, "huge pages")
	}
	if m.Resend {
		words = append(words, "survives crashes")
	} else {
		words = append(words, "a crash is seen by clients")
	}
	return strings.Join(words, ", ")
}

// String is the fill of the tier; one without a size is not in use.
func (t tierStatus) String() string {
	if t.SizeBytes == 0 {
		return "none"
	}
	text := fmt.Sprintf("%s of %s (%.0f%%)", sizeValue(t.UsedBytes).people(), sizeValue(t.SizeBytes).people(),
		100*float64(t.UsedBytes)/float64(t.SizeBytes))
	if t.Pages > 0 {
		text += fmt.Sprintf(", %d pages", t.Pages)
	}
	if t.ReservedBytes > 0 {
		text += ", " + sizeValue(t.ReservedBytes).people() + " reserved"
	}
	return text
}

// uptime is a duration to two units: "3d4h", "12m5s".
func uptime(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	if days := d / (24 * time.Hour); days > 0 {
		return fmt.Sprintf("%dd%dh", days, (d%(24*time.Hour))/time.Hour)
	}
	if d >= time.Hour {
		return fmt.Sprintf("%dh%dm", d/time.Hour, (d%time.Hour)/time.Minute)
	}
	return d.String()
}
