package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// slowDisk has the kernel keep a process's reads of the disk that holds at to so
// many bytes a second, with a control group of its own, until undo is called.
// errSkip where that cannot be had.
func slowDisk(pid int, at string, bytesPerSecond int64) (undo func() error, err error) {
	defer func() {
		if err != nil {
			err = errSkip{fmt.Sprintf("reads of the disk cannot be made slow: %v", err)}
		}
	}()
	disk, err := diskOf(at)
	if err != nil {
		return nil, err
	}
	root, file, limit, err := ioGroups()
	if err != nil {
		return nil, err
	}
	before, err := groupOf(pid, root)
	if err != nil {
		return nil, err
	}
	group, err := os.MkdirTemp(root, "ckptfs-bench-")
	if err != nil {
		return nil, err
	}
	move := func(to string) error {
		return os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	}
	undo = func() error { return errors.Join(move(before), os.Remove(group)) }
	err = os.WriteFile(filepath.Join(group, file), fmt.Appendf(nil, limit, disk, bytesPerSecond), 0)
	if err = errors.Join(err, move(group)); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// ioGroups finds where control groups limit the use of disks: where groups are made,
// which file takes a limit of reads, and in what format (disk, bytes a second).
func ioGroups() (root, file, limit string, err error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", "", err
	}
	for line := range strings.Lines(string(table)) {
		about, fs, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(about), strings.Fields(fs)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch root := fields[4]; {
		case kind[0] == "cgroup" && hasWord(kind[2], ",", "blkio"):
			return root, "blkio.throttle.read_bps_device", "%s %d", nil
		case kind[0] == "cgroup2":
			have, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
			if err != nil || !hasWord(strings.TrimSpace(string(have)), " ", "io") {
				continue
			}
			return root, "io.max", "%s rbps=%d", os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+io"), 0)
		}
	}
	return "", "", "", errors.New("no control groups of disks are mounted")
}

func hasWord(list, separator, word string) bool {
	return slices.Contains(strings.Split(list, separator), word)
}

// groupOf is the directory of the control group that a process is in, below root.
func groupOf(pid int, root string) (string, error) {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(groups)) {
		// number:controllers:path, and no controllers for version 2
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (hasWord(parts[1], ",", "blkio") || parts[1] == "") {
			if dir := filepath.Join(root, parts[2]); isGroup(dir) {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("process %d is in no control group below %s", pid, root)
}

func isGroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	return err == nil
}

// diskOf is the number, major:minor, of the whole disk that holds at.
func diskOf(at string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(at, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: at, Err: err}
	}
	dev := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	dir, err := filepath.EvalSymlinks("/sys/dev/block/" + dev)
	if err != nil {
		return "", fmt.Errorf("%s is on no disk: %w", at, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err != nil {
		return dev, nil
	}
	whole, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "dev"))
	return string(bytes.TrimSpace(whole)), err
}
