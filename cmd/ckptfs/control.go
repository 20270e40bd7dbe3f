package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

// Keeper and daemon talk over a socket pair, one JSON object a line. A field or an op that one of them does not know
// (after an upgrade) is passed over.

// The ops of the keeper.
const (
	opConfig = "config" // the first message: Config
	opGo     = "go"     // the kernel has its INIT reply: serve
	opPing   = "ping"   // to be answered by opPong with the same Seq
	opDrain  = "drain"  // Reason, Limit; finish what is under way, then answer opDrained
	opExit   = "exit"   // close everything and exit
)

// The ops of the daemon.
const (
	opReady     = "ready"     // about to serve; Passthrough
	opPong      = "pong"      // Seq, Taken
	opDrained   = "drained"   // Reason of the opDrain, Unsaved
	opUnmounted = "unmounted" // the kernel ended the connection
	opFatal     = "fatal"     // the daemon cannot go on: Reason, Code; it exits
)

// The reasons of opDrain.
const (
	drainUpgrade  = "upgrade"
	drainShutdown = "shutdown"
)

// message is what either side sends.
type message struct {
	Op          string        `json:"op"`
	Seq         int           `json:"seq,omitempty"`
	Taken       uint64        `json:"taken,omitempty"` // requests read from the kernel so far, and one; 0: unknown
	Reason      string        `json:"reason,omitempty"`
	Code        int           `json:"code,omitempty"`
	Limit       time.Duration `json:"limit,omitempty"`
	Passthrough bool          `json:"passthrough,omitempty"`
	Version     string        `json:"version,omitempty"`
	Unsaved     int64         `json:"unsaved,omitempty"` // bytes that a shutdown could not write to disk
	Config      *daemonConfig `json:"config,omitempty"`
}

// daemonConfig is everything that a daemon is told at its start.
type daemonConfig struct {
	Mountpoint       string        `json:"mountpoint"`
	StateDir         string        `json:"state_dir"`
	RAMDir           string        `json:"ram_dir"`
	RAMKind          string        `json:"ram_kind"` // ramTmpfs or ramShm
	HugePages        bool          `json:"huge_pages"`
	L1Bytes          int64         `json:"l1_bytes"`
	MaxGenerations   int           `json:"max_generations"`
	MaxStaging       int           `json:"max_staging"`
	MaxHandles       int           `json:"max_handles"`
	StagingTimeout   time.Duration `json:"staging_timeout"`
	AdmissionTimeout time.Duration `json:"admission_timeout"`
	Passthrough      string        `json:"passthrough"` // passthroughAuto, passthroughOn or passthroughOff
	MaxWrite         int           `json:"max_write"`   // bytes, agreed with the kernel
	ShutdownBudget   time.Duration `json:"shutdown_budget"`
	Tiers            tierOptions   `json:"tiers"`
	Log              logOptions    `json:"log"`

	Flags       map[string]any `json:"flags"`        // for config.json
	MetricsAddr string         `json:"metrics_addr"` // where daemonMetricsFD listens; "": there is none

	FreshMount bool       `json:"fresh_mount"` // the kernel knows no node and no handle yet
	Resend     bool       `json:"resend"`      // the kernel can send again what a dead daemon left unanswered
	Keeper     keeperInfo `json:"keeper"`
}

// keeperInfo is what status shows of the keeper.
type keeperInfo struct {
	PID          int       `json:"pid"`
	Version      string    `json:"version"`
	Started      time.Time `json:"started"`
	Restarts     int       `json:"restarts"`                // daemons started again after one died
	LastDeath    string    `json:"last_death,omitempty"`    // how the last of them ended
	LastDeathAt  time.Time `json:"last_death_at"`           // and when
	Recovery     string    `json:"recovery"`                // recoverResend or recoverRemount
	UpgradeError string    `json:"upgrade_error,omitempty"` // why the last upgrade was taken back
}

// How a daemon's death is survived.
const (
	recoverResend  = "resend"  // invisibly: the kernel keeps the callers waiting and asks again
	recoverRemount = "remount" // by a new mount: callers get ENOTCONN
)

// controlConn is one end of the socket pair.
type controlConn struct {
	file *os.File
	dec  *json.Decoder

	mu sync.Mutex // one line at a time
}

func newControlConn(f *os.File) *controlConn {
	return &controlConn{file: f, dec: json.NewDecoder(f)}
}

// sendLimit bounds a send to a peer that does not read; the socket takes far more than is ever on its way.
const sendLimit = 2 * time.Second

func (c *controlConn) send(m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.file.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return err
	}
	_, err = c.file.Write(append(line, '\n'))
	return err
}

// receive waits for the next message. io.EOF: the peer is gone.
func (c *controlConn) receive() (message, error) {
	var m message
	err := c.dec.Decode(&m)
	return m, err
}
