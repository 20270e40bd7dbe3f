package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

const mountAbout = `
Mounts ckptfs at MOUNTPOINT, an existing directory, and serves it in the foreground. Prints one line when the mount is
ready; tells systemd too if NOTIFY_SOCKET is set.

Two processes do it: this one, the keeper, and the daemon, which it starts. If the daemon dies it is started again and
callers only wait a moment. SIGTERM or SIGINT end both in peace (one more, a moment later, at once), SIGHUP (or 'ckptfs
upgrade') starts the binary that is on disk now in place of the running one, without any caller noticing.

If the keeper too was killed, mount again: the dead mount is cleared, and the pages in RAM are taken over.`

// The values of --passthrough.
const (
	passthroughAuto = "auto" // where the kernel and the privileges allow it
	passthroughOn   = "on"   // or fail
	passthroughOff  = "off"
)

// defaultShutdownBudget fits the 10 s that containers are given.
const defaultShutdownBudget = 8 * time.Second

// mountOptions are the flags of 'ckptfs mount'.
type mountOptions struct {
	State            string
	L1Size           sizeValue
	MaxGenerations   int
	MaxStaging       int
	MaxHandles       int
	StagingTimeout   time.Duration
	AdmissionTimeout time.Duration
	Passthrough      string
	RAMTier          string
	KeepRAM          bool
	AllowOther       bool
	MakeDir          bool
	Watchdog         time.Duration
	ShutdownBudget   time.Duration
	MetricsAddr      string
	Tiers            tierOptions
	Log              logOptions

	values map[string]any // of all flags
}

func (o *mountOptions) AddFlags(fs *pflag.FlagSet) {
	o.L1Size = sizeValue(defaultL1Bytes(memoryBytes()))
	fs.StringVar(&o.State, "state", defaultStateDir(), "directory for the index and, below ram/, the RAM tier")
	fs.Var(&o.L1Size, "l1-size", "RAM for pages, a hard bound: 4GiB, 512MiB; by default a quarter of the memory that this machine or container has")
	fs.IntVar(&o.MaxGenerations, "max-generations", 65536, "published generations; the least recently used beyond it are retired")
	fs.IntVar(&o.MaxStaging, "max-staging", 128, "stagings at a time; mkdir beyond it is EAGAIN")
	fs.IntVar(&o.MaxHandles, "max-handles", 65536, "files and directories that clients have open at a time; an open beyond it is EMFILE. Fewer if the limit of descriptors is lower")
	fs.DurationVar(&o.StagingTimeout, "staging-timeout", 10*time.Minute, "discard a staging that nobody has open or changed for so long")
	fs.DurationVar(&o.AdmissionTimeout, "admission-timeout", 5*time.Second, "how long a manifest waits for RAM to become free before it is ENOSPC")
	fs.StringVar(&o.Passthrough, "passthrough", passthroughAuto, "let the kernel move page bytes by itself: auto, on (or fail), off")
	fs.StringVar(&o.RAMTier, "ram-tier", ramAuto, "where pages are in RAM: tmpfs (mounted below --state, needs root), shm (a directory in /dev/shm), auto")
	fs.BoolVar(&o.KeepRAM, "keep-ram", false, "leave the pages in RAM at a clean stop, for a quick start afterwards")
	fs.BoolVar(&o.AllowOther, "allow-other", os.Geteuid() == 0, "let other users enter the mount, as far as modes and owners of files and directories permit; root does by default")
	fs.BoolVar(&o.MakeDir, "mkdir", false, "make the mount point, and what is missing above it, first")
	fs.DurationVar(&o.Watchdog, "watchdog", 30*time.Second, "replace a daemon that has hung for so long: answers nothing, or takes no calls; 0: never")
	fs.DurationVar(&o.ShutdownBudget, "shutdown-budget", defaultShutdownBudget, "time for a clean stop, from signal to exit")
	fs.StringVar(&o.MetricsAddr, "metrics-addr", "", "serve /metrics, /healthz and /readyz by HTTP at `HOST:PORT`, or on loopback at :PORT; nowhere by default")
	o.Tiers.AddFlags(fs)
	o.Log.AddFlags(fs)
}

func runMount(_ context.Context, args []string, io streams) error {
	var o mountOptions
	fs := newFlags(io, "mount [flags] MOUNTPOINT", mountAbout)
	o.AddFlags(fs)
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	if err := o.validate(memoryBytes()); err != nil {
		return withCode(exitUsage, err)
	}
	o.values = flagValues(fs)
	log, err := o.Log.newLogger(io.err)
	if err != nil {
		return err
	}
	// From before anything is changed: a signal must not leave half of it behind.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer signal.Stop(signals)
	k, err := o.prepare(fs.Arg(0), io, log)
	if err != nil {
		return err
	}
	defer k.lock.release()
	return k.run(signals)
}

// The bounds of --max-handles. Each handle has a place in a table in RAM.
const (
	leastHandles = 64
	mostHandles  = 1 << 20
)

// validate checks the values of the flags by themselves. memory is what the machine has in bytes, 0 if unknown.
func (o *mountOptions) validate(memory int64) error {
	oneOf := func(flag, value string, allowed ...string) error {
		for _, a := range allowed {
			if value == a {
				return nil
			}
		}
		return fmt.Errorf("--%s %q: use one of %q", flag, value, allowed)
	}
	positive := func(flag string, value int64) error {
		if value <= 0 {
			return fmt.Errorf("--%s must be more than 0", flag)
		}
		return nil
	}
	err := errors.Join(
		oneOf("passthrough", o.Passthrough, passthroughAuto, passthroughOn, passthroughOff),
		oneOf("ram-tier", o.RAMTier, ramAuto, ramTmpfs, ramShm),
		positive("max-generations", int64(o.MaxGenerations)),
		positive("max-staging", int64(o.MaxStaging)),
		positive("staging-timeout", int64(o.StagingTimeout)),
		positive("admission-timeout", int64(o.AdmissionTimeout)),
		positive("shutdown-budget", int64(o.ShutdownBudget)),
		o.Tiers.validate(),
	)
	if o.State == "" {
		err = errors.Join(err, errors.New("--state is empty; leave it out for the default"))
	}
	if o.MaxHandles < leastHandles || o.MaxHandles > mostHandles {
		err = errors.Join(err, fmt.Errorf("--max-handles %d: use %d to %d", o.MaxHandles, leastHandles, mostHandles))
	}
	if o.L1Size < 1<<20 {
		err = errors.Join(err, fmt.Errorf("--l1-size %s is too little; the least is 1MiB", &o.L1Size))
	}
	if memory > 0 && int64(o.L1Size) > memory {
		err = errors.Join(err, fmt.Errorf("--l1-size %s is more than the memory there is (%s)", &o.L1Size, sizeValue(memory).people()))
	}
	if o.MetricsAddr != "" {
		_, aerr := metricsAddress(o.MetricsAddr)
		err = errors.Join(err, aerr)
	}
	if o.Watchdog < 0 || (o.Watchdog > 0 && o.Watchdog < time.Second) {
		err = errors.Join(err, errors.New("--watchdog must be 0 or at least 1s"))
	}
	return err
}
