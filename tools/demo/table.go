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

	// What the tiers did meanwhile, and what RAM held then.
	toDisk, fromDisk, inRAM int64
}

// column is one figure of a row.
type column struct {
	title string
	width int
	value func(row) string
}

var (
	columnPages    = column{"pages", 6, func(r row) string { return strconv.Itoa(r.pages) }}
	columnCopied   = column{"copied", 9, func(r row) string { return decimal(r.copiedBytes) }}
	columnShared   = column{"shared", 9, func(r row) string { return decimal(r.sharedBytes) }}
	columnToDisk   = column{"to disk", 9, func(r row) string { return decimal(r.toDisk) }}
	columnFromDisk = column{"from disk", 10, func(r row) string { return decimal(r.fromDisk) }}
	columnInRAM    = column{"in RAM", 9, func(r row) string { return decimal(r.inRAM) }}
	columnTime     = column{"time", 9, func(r row) string { return short(r.took) }}
	columnRate     = column{"GB/s", 6, row.rate}
)

// table prints rows as they come.
type table struct {
	out     io.Writer
	columns []column
}

func newTable(out io.Writer, columns []column) *table {
	t := &table{out, columns}
	t.line("step", func(c column) string { return c.title })
	return t
}

func (t *table) add(step string, r row) {
	t.line(step, func(c column) string { return c.value(r) })
}

func (t *table) line(first string, cell func(column) string) {
	fmt.Fprintf(t.out, "%-48s", first)
	for _, c := range t.columns {
		fmt.Fprintf(t.out, " %*s", c.width, cell(c))
	}
	fmt.Fprintln(t.out)
}

func (r row) rate() string {
	if r.quiet || r.copiedBytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(r.copiedBytes)/1e9/r.took.Seconds())
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
