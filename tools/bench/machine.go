package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes where the figures are from.
type machine struct {
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	Disk        string `json:"disk"` // filesystem of the temporary directory
	Load        string `json:"load"` // load average when it began
	Go          string `json:"go"`
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d CPUs, %.0f GiB, Linux %s, disk %s, %s, load %s",
		m.CPU, m.CPUs, float64(m.MemoryBytes)/(1<<30), m.Kernel, m.Disk, m.Go, m.Load)
}

func thisMachine(dir string) machine {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Disk: filesystemOf(dir)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		m.MemoryBytes = int64(si.Totalram) * int64(si.Unit)
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Fields(string(b))[0]
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				m.CPU = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	return m
}

// filesystemOf names the type of the filesystem that dir is on.
func filesystemOf(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "?"
	}
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs (no disk)", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs"}
	if n, ok := names[int64(st.Type)]; ok {
		return n
	}
	return fmt.Sprintf("%#x", st.Type)
}
