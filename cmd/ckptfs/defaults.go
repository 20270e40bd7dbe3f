package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// defaultStateDir is /var/lib/ckptfs for root, and the user's own place for state otherwise.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/ckptfs"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ckptfs")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, ".local", "state", "ckptfs")
}

// defaultL1Bytes is a quarter of the memory in whole 64 MiB; 4 GiB if the memory is unknown.
func defaultL1Bytes(memory int64) int64 {
	const step = 64 << 20
	if memory <= 0 {
		return 4 << 30
	}
	return max(memory/4/step*step, step)
}

// memoryBytes is the memory of this machine, or of its container if that has less. 0: unknown.
func memoryBytes() int64 {
	memory := memTotal("/proc/meminfo")
	for _, limit := range []string{
		"/sys/fs/cgroup/memory.max",                   // version 2, in a container
		"/sys/fs/cgroup/memory/memory.limit_in_bytes", // version 1
	} {
		if n := readNumber(limit); n > 0 && (memory == 0 || n < memory) {
			memory = n
		}
	}
	return memory
}

// memTotal reads "MemTotal: 24683620 kB".
func memTotal(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// readNumber reads a file that holds one number; 0 if it holds something else, like "max".
func readNumber(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
