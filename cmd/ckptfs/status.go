package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ckptfs/fusefs"
)

const statusUsage = "status [--json] MOUNT"

const statusAbout = `Shows how a mount is: what is wrong first, if anything, then the tiers' fill, what is open and what happened.

It reads MOUNT/.ckptfs/status.json, which is for root only.`

// mountStatus is status.json. Fields that a daemon of another version leaves out are zero.
type mountStatus struct {
	Version        string     `json:"version"`
	Mountpoint     string     `json:"mountpoint"`
	StateDir       string     `json:"state_dir"`
	PID            int        `json:"pid"`
	KeeperPID      int        `json:"keeper_pid"`
	UptimeSeconds  float64    `json:"uptime_seconds"`
	Restarts       int        `json:"restarts"`
	Mode           statusMode `json:"mode"`
	RAM            tierStatus `json:"ram"`
	Disk           tierStatus `json:"disk"`
	Models         int        `json:"models"`
	Identities     int        `json:"identities"`
	Generations    int        `json:"generations"`
	GenerationsMax int        `json:"generations_max"`
	Stagings       int        `json:"stagings"`
	StagingsMax    int        `json:"stagings_max"`
	Pins           int        `json:"pins"`
	Writing        []writing  `json:"writing"`
	Handles        struct {
		Open  int64 `json:"open"`
		Max   int64 `json:"max"`
		Pages int64 `json:"pages"`
		Find  int64 `json:"find"`
	} `json:"handles"`
	Leases fusefs.LeaseCounts `json:"leases"`
	Files  fusefs.StatusFiles `json:"files"`

	Busiest  []fusefs.ModelUse `json:"busiest"`
	Counters map[string]int64  `json:"counters"`
	Problems []string          `json:"problems"`
}

// writing is a staging, with the pages of each rank that are there.
type writing struct {
	Model    string `json:"model"`
	Identity string `json:"identity"`
	Name     string `json:"name"`
	Seconds  int64  `json:"seconds"` // since it was held or changed last
	Ranks    []struct {
		Pages int64 `json:"pages"`
		Of    int64 `json:"of"`
	} `json:"ranks"`
}

// statusMode says which ways of working the kernel and the privileges allow.
type statusMode struct {
	Passthrough       bool   `json:"passthrough"`
	PassthroughReason string `json:"passthrough_reason"`
	RAMTier           string `json:"ram_tier"`
	HugePages         bool   `json:"huge_pages"`
	Resend            bool   `json:"resend"`
}

// tierStatus is the fill of a tier.
type tierStatus struct {
	SizeBytes     int64 `json:"size_bytes"`
	UsedBytes     int64 `json:"used_bytes"`
	ReservedBytes int64 `json:"reserved_bytes"`
	Pages         int64 `json:"pages"`
}

func runStatus(_ context.Context, args []string, io streams) error {
	fs := newFlags(io, statusUsage, statusAbout)
	asJSON := fs.Bool("json", false, "print status.json as it is")
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	text, err := readStatus(fs.Arg(0))
	if err != nil {
		return err
	}
	if *asJSON {
		_, err := io.out.Write(text)
		return err
	}
	var status mountStatus
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("%s: status.json: %w", fs.Arg(0), err)
	}
	return writeStatus(io.out, status)
}

// readStatus reads a mount's status.json.
func readStatus(mount string) ([]byte, error) { return readControl(mount, "status.json") }

// statusLimit is how long a daemon may take to answer people.
const statusLimit = 10 * time.Second

// readControl reads a file of .ckptfs. A daemon that hangs is not waited for: it is the keeper that deals with it.
func readControl(mount, name string) ([]byte, error) {
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := os.ReadFile(filepath.Join(mount, ".ckptfs", name))
		answered <- answer{text, err}
	}()
	var got answer
	select {
	case got = <-answered:
	case <-time.After(statusLimit):
		return nil, withCode(exitNotMounted, fmt.Errorf("%s does not answer for %v; a daemon that hangs is replaced after --watchdog, and the log tells of it", mount, statusLimit))
	}
	switch {
	case errors.Is(got.err, fs.ErrPermission):
		return nil, fmt.Errorf("the status of %s is for root only; try sudo: %w", mount, got.err)
	case got.err != nil:
		return nil, withCode(exitNotMounted, fmt.Errorf("no ckptfs answers at %s: %w", mount, got.err))
	}
	return got.text, nil
}
