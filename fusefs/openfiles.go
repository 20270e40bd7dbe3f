package fusefs

import (
	"os"

	"golang.org/x/sys/unix"
)

// openFiles counts this process's descriptors. It costs a look at each.
func openFiles() (f StatusFiles) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		f.Max = limit.Cur
	}
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return f
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	f.Open = max(len(names)-1, 0) // without this one
	return f
}
