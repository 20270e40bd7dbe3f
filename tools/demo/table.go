package main

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// row is the outcome of a step.
type row struct {
	pages       int
	copiedBytes int64
	sharedBytes int64
	took        time.Duration
	// quiet says that bytes per second mean nothing here.
	quiet bool
}

// table prints rows as they come.
type table struct {
	out io.Writer
}

const tableFormat = "%-48s %6s %9s %9s %9s %6s\n"

func newTable(out io.Writer) *table {
	fmt.Fprintf(out, tableFormat, "step", "pages", "copied", "shared", "time", "GB/s")
	return &table{out}
}

func (t *table) add(step string, r row) {
	rate := "-"
	if !r.quiet && r.copiedBytes > 0 {
		rate = fmt.Sprintf("%.2f", float64(r.copiedBytes)/1e9/r.took.Seconds())
	}
	fmt.Fprintf(t.out, tableFormat, step, strconv.Itoa(r.pages), decimal(r.copiedBytes), decimal(r.sharedBytes), short(r.took), rate)
}

func decimal(bytes int64) string {
	if bytes >= 1e9 {
		return fmt.Sprintf("%.2f GB", float64(bytes)/1e9)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}

func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
