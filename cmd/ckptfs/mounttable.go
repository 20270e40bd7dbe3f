package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// mountEntry is one line of /proc/self/mountinfo.
type mountEntry struct {
	id     int
	device string // major:minor
	point  string
	fstype string
	source string
	super  string // the filesystem's own options, by comma
}

// hasOption reports whether the filesystem itself is mounted with this option.
func (e mountEntry) hasOption(option string) bool {
	return slices.Contains(strings.Split(e.super, ","), option)
}

// isFUSE reports whether the mount is served by a FUSE process.
func (e mountEntry) isFUSE() bool {
	return e.fstype == "fuse" || e.fstype == "fuseblk" || strings.HasPrefix(e.fstype, "fuse.")
}

// mountTable reads the mounts that this process sees, the oldest first.
func mountTable() ([]mountEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMountInfo(f)
}

// parseMountInfo reads the format of proc_pid_mountinfo(5):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMountInfo(r io.Reader) ([]mountEntry, error) {
	var table []mountEntry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, r := strings.Split(left, " "), strings.Split(right, " ")
		if !ok || len(l) < 6 || len(r) < 3 {
			return nil, fmt.Errorf("mountinfo has a line of an unknown form: %q", lines.Text())
		}
		id, err := strconv.Atoi(l[0])
		if err != nil {
			return nil, fmt.Errorf("mountinfo has a line of an unknown form: %q", lines.Text())
		}
		table = append(table, mountEntry{id: id, device: l[2], point: unescapeMount(l[4]),
			fstype: r[0], source: unescapeMount(r[1]), super: r[2]})
	}
	return table, lines.Err()
}

// unescapeMount undoes the kernel's \ooo for space, tab, newline and backslash.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountsAt returns the mounts stacked on exactly this (resolved) path, the lowest first.
func mountsAt(table []mountEntry, path string) []mountEntry {
	var at []mountEntry
	for _, e := range table {
		if e.point == path {
			at = append(at, e)
		}
	}
	return at
}
