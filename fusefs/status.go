package fusefs

import (
	"time"

	"ckptfs/fusefs/staging"
)

// Status is what .ckptfs/status.json says. Sizes are bytes.
type Status struct {
	Version        string           `json:"version"`
	Mountpoint     string           `json:"mountpoint"`
	StateDir       string           `json:"state_dir"`
	PID            int              `json:"pid"`        // the daemon
	KeeperPID      int              `json:"keeper_pid"` // its keeper
	Started        time.Time        `json:"started"`
	UptimeSeconds  int64            `json:"uptime_seconds"`
	Restarts       int              `json:"restarts"`
	LastDeath      string           `json:"last_death,omitempty"`
	LastDeathAt    *time.Time       `json:"last_death_at,omitempty"`
	UpgradeError   string           `json:"upgrade_error,omitempty"`
	Mode           StatusMode       `json:"mode"`
	RAM            StatusRAM        `json:"ram"`
	Disk           StatusDisk       `json:"disk"`
	AtRest         bool             `json:"at_rest"`    // eviction and loading have nothing to do
	Reconciled     bool             `json:"reconciled"` // what no start waits for is done: disk and index have been compared
	Models         int              `json:"models"`
	Identities     int              `json:"identities"`
	Generations    int              `json:"generations"`
	GenerationsMax int              `json:"generations_max"`
	Stagings       int              `json:"stagings"`
	StagingsMax    int              `json:"stagings_max"`
	Removing       int              `json:"removing"` // generations that rm -r is taking away
	Pins           int              `json:"pins"`     // models, identities and generations that are pinned themselves
	Writing        []Writing        `json:"writing"`  // the oldest stagings
	Handles        StatusHandles    `json:"handles"`
	Leases         LeaseCounts      `json:"leases"`
	Log            LogCounts        `json:"log"`
	Clients        StatusClients    `json:"clients"`
	Files          StatusFiles      `json:"files"`
	Retention      StatusRetention  `json:"retention"`
	Counters       map[string]int64 `json:"counters"`
	Busiest        []ModelUse       `json:"busiest"` // models, the one that is used most first
	Problems       []string         `json:"problems"`

	problems []problem // the same, with their kinds
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

// LogCounts counts the lines of the daemon's log.
type LogCounts struct {
	Infos      int64 `json:"infos"`
	Warnings   int64 `json:"warnings"`
	Errors     int64 `json:"errors"`
	Suppressed int64 `json:"suppressed"` // of any level: there were too many of one message
}

// StatusClients is the memory that clients have held in the daemon.
type StatusClients struct {
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
}

// StatusFiles counts the daemon's own descriptors.
type StatusFiles struct {
	Open int    `json:"open"`
	Max  uint64 `json:"max"`
}

// StatusRetention is what the retention policy holds in memory.
type StatusRetention struct {
	Generations   int   `json:"generations"`
	Conversations int   `json:"conversations"`
	MemoryBytes   int64 `json:"memory_bytes"`
}

// Status tells how the mount is.
func (fs *FS) Status() Status {
	reason := fs.backing.reason()
	s := Status{
		Version: fs.cfg.Version, Mountpoint: fs.cfg.Mountpoint, StateDir: fs.cfg.StateDir,
		PID: fs.cfg.PID, KeeperPID: fs.cfg.KeeperPID, Restarts: fs.cfg.Restarts, LastDeath: fs.cfg.LastDeath, UpgradeError: fs.cfg.Upgrade,
		Started: fs.started, UptimeSeconds: int64(fs.now().Sub(fs.started) / time.Second),
		Mode: StatusMode{
			Passthrough: reason == "", PassthroughReason: reason,
			RAMTier: ramTierName(fs.ram.Kind()), HugePages: fs.cfg.HugePages, Resend: fs.cfg.Resend,
		},
		Generations: fs.idx.Count(), GenerationsMax: fs.cfg.MaxGenerations,
		Stagings: fs.stage.Count(), StagingsMax: fs.cfg.MaxStaging, Removing: fs.stage.Ghosts(),
		AtRest: fs.tiers.AtRest(), Reconciled: fs.isReconciled(), Pins: fs.idx.Pins(), Writing: fs.stage.Progress(maxWriting),
		Busiest: fs.busiest.list(), Counters: make(map[string]int64, len(fs.counters)), Problems: []string{},
	}
	if at := fs.cfg.LastDeathAt; !at.IsZero() {
		s.LastDeathAt = &at
	}
	if fs.cfg.LogCounts != nil {
		s.Log = fs.cfg.LogCounts()
	}
	for _, c := range fs.counters {
		s.Counters[c.name] = c.value()
	}
	fs.fillTiers(&s)
	fs.countObjects(&s)
	fs.countHandles(&s)
	s.problems = fs.findProblems(&s)
	for _, p := range s.problems {
		s.Problems = append(s.Problems, p.text)
	}
	return s
}

func (fs *FS) fillTiers(s *Status) {
	held, reserved := fs.budget.Usage()
	s.RAM = StatusRAM{SizeBytes: fs.budget.Limit(), UsedBytes: held, ReservedBytes: reserved, MappedBytes: fs.tiers.KeptBytes(), Pages: fs.tiers.Resident()}
	size, used := fs.diskFill()
	s.Disk = StatusDisk{Dir: fs.disk.Dir(), SizeBytes: size, UsedBytes: used}
	p := fs.tiers.PolicyStats()
	s.Retention = StatusRetention{Generations: p.Generations, Conversations: p.Conversations, MemoryBytes: p.Bytes}
}

func (fs *FS) countObjects(s *Status) {
	for after := uint64(0); ; {
		ms := fs.idx.Models(objectID(after), listBatch)
		for _, m := range ms {
			s.Models++
			s.Identities += len(m.Identities(0, 1<<30))
			after = uint64(m.ID)
		}
		if len(ms) < listBatch {
			return
		}
	}
}

func (fs *FS) countHandles(s *Status) {
	s.Handles = StatusHandles{Open: fs.handles.open.Load(), Max: fs.maxHandles}
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
	s.Files = openFiles()
	s.Clients = StatusClients{Bytes: fs.clients.used.Load(), MaxBytes: maxClientBytes}
}
