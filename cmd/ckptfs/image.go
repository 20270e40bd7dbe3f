package main

import (
	"fmt"
	"log/slog"
	"os"
)

// binaryImage decides which binary a daemon is started from. The file that is running is kept open, so that a daemon
// which dies comes back in the same version, whatever happens to the file on disk; an upgrade, and only that, turns
// to the file that is at the path by then. If it does not come up, the one before is taken again.
type binaryImage struct {
	path     string
	current  *os.File
	previous *os.File // nil: nothing to go back to
}

// ownImage is the binary of this process.
func ownImage() (*binaryImage, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	return &binaryImage{path: path, current: f}, nil
}

// execPath is where the current binary can be executed from, also when its file was replaced or removed.
func (b *binaryImage) execPath() string {
	// Not /proc/self/fd: in the child, the number may be in use for something else by the time of the exec.
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), b.current.Fd())
}

// advance takes the binary that is now on disk.
func (b *binaryImage) advance() error {
	f, err := os.Open(b.path)
	if err != nil {
		return err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		f.Close()
		return fmt.Errorf("%s is no executable file", b.path)
	}
	b.keep()
	b.previous, b.current = b.current, f
	return nil
}

// goBack takes the binary from before advance; false if there is none.
func (b *binaryImage) goBack(log *slog.Logger) bool {
	if b.previous == nil {
		return false
	}
	log.Warn("going back to the binary from before the upgrade", "path", b.path)
	b.current.Close()
	b.current, b.previous = b.previous, nil
	return true
}

// keep makes the current binary final.
func (b *binaryImage) keep() {
	if b.previous != nil {
		b.previous.Close()
		b.previous = nil
	}
}
