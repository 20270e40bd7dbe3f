package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killedWithin is how long killed processes may take to be gone.
const killedWithin = 10 * time.Second

// cleanUp kills the keeper if it still runs, and the daemon with it, detaches
// what is mounted, the RAM tier of a killed keeper too, and removes everything.
func (m *mounted) cleanUp() error {
	var err error
	if k := m.keeper; k != nil {
		_ = k.command.Process.Kill() // it may be gone, then this does nothing
		err = k.awaitExit(context.Background(), killedWithin)
	}
	left, _ := mountsBelow(m.base)
	for _, at := range left {
		err = errors.Join(err, detach(at))
	}
	if left, listErr := mountsBelow(m.base); listErr != nil || len(left) > 0 {
		return errors.Join(err, listErr, fmt.Errorf("%s is left behind, with mounts in it", m.base))
	}
	return errors.Join(err, os.RemoveAll(m.sharedRAM()), os.RemoveAll(m.base))
}

// sharedRAM is where the RAM tier of this state is if no tmpfs may be mounted.
func (m *mounted) sharedRAM() string {
	sum := sha256.Sum256([]byte(m.state()))
	return filepath.Join("/dev/shm", fmt.Sprintf("ckptfs-%x", sum[:8]))
}

// mountsBelow lists the mount points below dir, the deepest first.
func mountsBelow(dir string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	slices.Reverse(found)
	return found, nil
}

func detach(at string) error {
	err := syscall.Unmount(at, syscall.MNT_DETACH)
	if err == syscall.EPERM {
		return exec.Command("fusermount3", "-u", "-z", at).Run()
	}
	return err
}

// procAttr puts a process into a group of its own, so that Ctrl-C reaches this
// program alone, which ends the others in order, and sends it a signal if this
// program dies.
func procAttr(onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath}
}

// lockedBuffer collects the keeper's log while others read it.
type lockedBuffer struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Buffer.String()
}
