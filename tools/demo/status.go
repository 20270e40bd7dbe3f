package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// restWithin is how long the tiers may take to come to rest.
const restWithin = time.Minute

// status is what the demo needs of .ckptfs/status.json.
type status struct {
	PID       int `json:"pid"`
	KeeperPID int `json:"keeper_pid"`
	RAM       struct {
		SizeBytes int64 `json:"size_bytes"`
		UsedBytes int64 `json:"used_bytes"`
		Pages     int   `json:"pages"`
	} `json:"ram"`
	Disk struct {
		UsedBytes int64 `json:"used_bytes"`
	} `json:"disk"`
	AtRest      bool `json:"at_rest"`
	Generations int  `json:"generations"`
	Counters    struct {
		DiskWrittenBytes  int64 `json:"disk_written_bytes"`
		DiskWriteFailures int64 `json:"disk_write_failures"`
		LoadedBytes       int64 `json:"loaded_bytes"`
		LostPages         int64 `json:"lost_pages"`
	} `json:"counters"`
}

func (m *mounted) status() (s status, err error) {
	raw, err := os.ReadFile(filepath.Join(m.path, ".ckptfs/status.json"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("status.json: %w", err)
	}
	return s, nil
}

// settled waits until eviction and loading have nothing to do.
func (m *mounted) settled(ctx context.Context) (s status, err error) {
	err = await(ctx, restWithin, func() (err error) {
		if s, err = m.status(); err == nil && !s.AtRest {
			err = errors.New("the tiers do not come to rest")
		}
		return err
	})
	if err == nil && (s.Counters.DiskWriteFailures > 0 || s.Counters.LostPages > 0) {
		err = fmt.Errorf("%d writes to disk failed, %d pages were lost", s.Counters.DiskWriteFailures, s.Counters.LostPages)
	}
	if err == nil && s.RAM.UsedBytes > s.RAM.SizeBytes {
		err = fmt.Errorf("%d bytes are in a RAM tier of %d", s.RAM.UsedBytes, s.RAM.SizeBytes)
	}
	return s, err
}
