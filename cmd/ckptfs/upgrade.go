package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const upgradeAbout = `
Has the ckptfs that serves MOUNT start the binary that is on disk now, at the path from which it was started. What is
being answered is finished first; callers only wait a moment, and open files, mappings and leases stay. If the new
binary does not come up, the one before goes on. The keeper process itself stays what it is until the next mount.

Needs to be run by root, or by the user who mounted.`

// daemonStatus is the part of .ckptfs/status.json that upgrade needs.
type daemonStatus struct {
	PID          int    `json:"pid"`
	KeeperPID    int    `json:"keeper_pid"`
	Version      string `json:"version"`
	UpgradeError string `json:"upgrade_error"`
}

func runUpgrade(ctx context.Context, args []string, io streams) error {
	fs := newFlags(io, "upgrade [flags] MOUNT", upgradeAbout)
	limit := fs.Duration("timeout", 30*time.Second, "how long to wait for the new daemon")
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	mount := fs.Arg(0)
	before, err := readDaemonStatus(mount)
	if err != nil {
		return err
	}
	if err := before.checkKeeper(); err != nil {
		return withCode(exitNotMounted, fmt.Errorf("%s: %w", mount, err))
	}
	if err := unix.Kill(before.KeeperPID, unix.SIGHUP); err != nil {
		return withCode(exitUpgrade, fmt.Errorf("the keeper (pid %d) cannot be told: %w", before.KeeperPID, err))
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	after, err := awaitNewDaemon(ctx, mount, before)
	if err != nil {
		return err
	}
	if err := after.checkBinary(); err != nil {
		return withCode(exitUpgrade, err)
	}
	_, err = fmt.Fprintf(io.out, "upgraded %s: %s (pid %d) -> %s (pid %d)\n", mount, before.Version, before.PID, after.Version, after.PID)
	return err
}

// readDaemonStatus asks the mount itself who serves it. A daemon that is replaced between two reads can leave a mixed
// text; then it is read again.
func readDaemonStatus(mount string) (s daemonStatus, err error) {
	for range 5 {
		var b []byte
		b, err = os.ReadFile(filepath.Join(mount, ".ckptfs", "status.json"))
		switch {
		case errors.Is(err, os.ErrNotExist):
			return s, withCode(exitNotMounted, fmt.Errorf("%s is no ckptfs mount (there is no .ckptfs/status.json)", mount))
		case errors.Is(err, unix.ENOTCONN):
			return s, withCode(exitNotMounted, fmt.Errorf("the ckptfs at %s is dead; mount it again", mount))
		case err != nil:
			return s, withCode(exitNotMounted, fmt.Errorf("the status of %s cannot be read: %w", mount, err))
		}
		s = daemonStatus{}
		if err = json.Unmarshal(b, &s); err == nil {
			return s, nil
		}
	}
	return s, withCode(exitNotMounted, fmt.Errorf("the status of %s cannot be understood: %w", mount, err))
}

// checkKeeper makes sure that a signal would reach the keeper: in another PID namespace the numbers mean nothing.
func (s daemonStatus) checkKeeper() error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
	if err != nil {
		return fmt.Errorf("its daemon (pid %d) is not to be seen from here; run this where it was mounted", s.PID)
	}
	// "pid (comm) state ppid …", and comm may hold anything.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 2 || fields[1] != strconv.Itoa(s.KeeperPID) || s.KeeperPID <= 1 {
		return fmt.Errorf("process %d is not the parent of its daemon (pid %d); run this where it was mounted", s.KeeperPID, s.PID)
	}
	return nil
}

// checkBinary makes sure that the daemon runs the binary that is on disk. If that one failed, the keeper has taken the
// one before again.
func (s daemonStatus) checkBinary() error {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.KeeperPID))
	if err != nil {
		return fmt.Errorf("the keeper (pid %d) cannot be looked at: %w", s.KeeperPID, err)
	}
	path = strings.TrimSuffix(path, " (deleted)")
	onDisk, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", s.KeeperPID, path))
	if err != nil {
		return fmt.Errorf("there is no binary at %s; %s (pid %d) serves on", path, s.Version, s.PID)
	}
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", s.PID))
	if err != nil {
		return fmt.Errorf("the daemon (pid %d) cannot be looked at: %w", s.PID, err)
	}
	if os.SameFile(onDisk, running) {
		return nil
	}
	why := s.UpgradeError
	if why == "" {
		why = "the log of the keeper says why"
	}
	return fmt.Errorf("the new binary %s did not come up: %s; the one before serves on (%s, pid %d)", path, why, s.Version, s.PID)
}

// awaitNewDaemon reads the status until another process answers. Reading waits by itself while none does.
func awaitNewDaemon(ctx context.Context, mount string, before daemonStatus) (daemonStatus, error) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		s, err := readDaemonStatus(mount)
		if err != nil {
			return s, err
		}
		if s.PID != before.PID {
			return s, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return s, withCode(exitUpgrade, fmt.Errorf("the daemon (pid %d) has not been replaced in time; the keeper's log may say why", s.PID))
		}
	}
}
