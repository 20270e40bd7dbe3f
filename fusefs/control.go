package fusefs

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"ckptfs/fusefs/staging"
)

// controlFile is a file of .ckptfs: made when it is opened.
type controlFile struct {
	name string
	make func(*FS) ([]byte, error)
}

// controlFiles are the files of .ckptfs by their nodes, which follow nodeControl.
var controlFiles = map[nodeID]controlFile{
	nodeStatus: {"status.json", (*FS).statusJSON},
	nodeLeases: {"leases.json", (*FS).leasesJSON},
	nodeConfig: {"config.json", (*FS).configJSON},
}

// counters count since this daemon started.
type counters struct {
	pageOpens            atomic.Int64
	pagesWritten         atomic.Int64
	lookups              atomic.Int64
	lookupMisses         atomic.Int64
	hitsRAM              atomic.Int64 // lookups whose answer was in RAM as a whole
	hitsDisk             atomic.Int64 // the others
	hitPagesRAM          atomic.Int64
	hitPagesDisk         atomic.Int64
	generationsPublished atomic.Int64
	generationsDeleted   atomic.Int64
	generationsRetired   atomic.Int64
	publishBusy          atomic.Int64
	stagingsDiscarded    atomic.Int64
	bytesReadOrdinary    atomic.Int64
}

func (c *counters) values() map[string]int64 {
	return map[string]int64{
		"page_opens":            c.pageOpens.Load(),
		"pages_written":         c.pagesWritten.Load(),
		"lookups":               c.lookups.Load(),
		"lookup_misses":         c.lookupMisses.Load(),
		"lookup_hits_ram":       c.hitsRAM.Load(),
		"lookup_hits_disk":      c.hitsDisk.Load(),
		"lookup_pages_ram":      c.hitPagesRAM.Load(),
		"lookup_pages_disk":     c.hitPagesDisk.Load(),
		"generations_published": c.generationsPublished.Load(),
		"generations_deleted":   c.generationsDeleted.Load(),
		"generations_retired":   c.generationsRetired.Load(),
		"publish_busy":          c.publishBusy.Load(),
		"stagings_discarded":    c.stagingsDiscarded.Load(),
		"bytes_read_ordinary":   c.bytesReadOrdinary.Load(),
	}
}

// Status is what .ckptfs/status.json says. Sizes are bytes.
type Status struct {
	Version       string           `json:"version"`
	Mountpoint    string           `json:"mountpoint"`
	StateDir      string           `json:"state_dir"`
	PID           int              `json:"pid"`        // the daemon
	KeeperPID     int              `json:"keeper_pid"` // its keeper
	Started       time.Time        `json:"started"`
	UptimeSeconds int64            `json:"uptime_seconds"`
	Restarts      int              `json:"restarts"`
	LastDeath     string           `json:"last_death,omitempty"`
	UpgradeError  string           `json:"upgrade_error,omitempty"`
	Mode          StatusMode       `json:"mode"`
	RAM           StatusRAM        `json:"ram"`
	Disk          StatusDisk       `json:"disk"`
	AtRest        bool             `json:"at_rest"` // eviction and loading have nothing to do
	Models        int              `json:"models"`
	Identities    int              `json:"identities"`
	Generations   int              `json:"generations"`
	Stagings      int              `json:"stagings"`
	Pins          int              `json:"pins"`    // models, identities and generations that are pinned themselves
	Writing       []Writing        `json:"writing"` // the oldest stagings
	Handles       StatusHandles    `json:"handles"`
	Leases        LeaseCounts      `json:"leases"`
	Counters      map[string]int64 `json:"counters"`
	Problems      []string         `json:"problems"`
}

// Writing is a staging in the status.
type Writing = staging.Progress

// maxWriting bounds how many stagings the status tells of.
const maxWriting = 16

// StatusMode is how the mount is served.
type StatusMode struct {
	Passthrough       bool   `json:"passthrough"`
	PassthroughReason string `json:"passthrough_reason,omitempty"` // why it is off
	RAMTier           string `json:"ram_tier"`                     // tmpfs or shm
	HugePages         bool   `json:"huge_pages"`
	Resend            bool   `json:"resend"` // a killed daemon is invisible
}

// StatusRAM is the RAM tier's fill.
type StatusRAM struct {
	SizeBytes     int64 `json:"size_bytes"`
	UsedBytes     int64 `json:"used_bytes"`
	ReservedBytes int64 `json:"reserved_bytes"`
	MappedBytes   int64 `json:"mapped_bytes"` // of what is used: pages that are gone, and still mapped by somebody
	Pages         int   `json:"pages"`
}

// StatusDisk is the disk tier's fill.
type StatusDisk struct {
	Dir       string `json:"dir"`
	SizeBytes int64  `json:"size_bytes"` // bound; what the disk lets it have if there is none
	UsedBytes int64  `json:"used_bytes"`
}

// StatusHandles counts what is open.
type StatusHandles struct {
	Open  int64 `json:"open"`
	Max   int   `json:"max"`
	Pages int   `json:"pages"`
	Find  int   `json:"find"`
}

func (fs *FS) statusJSON() ([]byte, error) {
	b, err := json.MarshalIndent(fs.Status(), "", "  ")
	return append(b, '\n'), err
}

// configJSON tells what the mount runs with.
func (fs *FS) configJSON() ([]byte, error) {
	b, err := json.MarshalIndent(fs.cfg.Effective, "", "  ")
	return append(b, '\n'), err
}

// Status tells how the mount is.
func (fs *FS) Status() Status {
	held, reserved := fs.budget.Usage()
	reason := fs.backing.reason()
	s := Status{
		Version: fs.cfg.Version, Mountpoint: fs.cfg.Mountpoint, StateDir: fs.cfg.StateDir,
		PID: fs.cfg.PID, KeeperPID: fs.cfg.KeeperPID, Restarts: fs.cfg.Restarts, LastDeath: fs.cfg.LastDeath, UpgradeError: fs.cfg.Upgrade,
		Started: fs.started, UptimeSeconds: int64(fs.now().Sub(fs.started) / time.Second),
		Mode: StatusMode{
			Passthrough: reason == "", PassthroughReason: reason,
			RAMTier: ramTierName(fs.ram.Kind()), HugePages: fs.cfg.HugePages, Resend: fs.cfg.Resend,
		},
		RAM:         StatusRAM{SizeBytes: fs.budget.Limit(), UsedBytes: held, ReservedBytes: reserved, MappedBytes: fs.tiers.KeptBytes(), Pages: fs.tiers.Resident()},
		Generations: fs.idx.Count(), Stagings: fs.stage.Count(),
		Counters: fs.count.values(), Problems: []string{},
		AtRest: fs.tiers.AtRest(), Pins: fs.idx.Pins(), Writing: fs.stage.Progress(maxWriting),
	}
	size, used := fs.diskFill()
	s.Disk = StatusDisk{Dir: fs.disk.Dir(), SizeBytes: size, UsedBytes: used}
	fs.tierCounters(s.Counters)
	for after := uint64(0); ; {
		ms := fs.idx.Models(objectID(after), listBatch)
		for _, m := range ms {
			s.Models++
			s.Identities += len(m.Identities(0, 1<<30))
			after = uint64(m.ID)
		}
		if len(ms) < listBatch {
			break
		}
	}
	s.Handles = StatusHandles{Open: fs.handles.open.Load(), Max: len(fs.handles.slots)}
	fs.handles.each(func(h *handle) {
		if l, ok := fs.leaseOf(h); ok {
			s.Leases.add(l.kind)
		}
		switch h.node.kind() {
		case kindPage:
			s.Handles.Pages++
		case kindFind:
			s.Handles.Find++
		}
	})
	return s
}
