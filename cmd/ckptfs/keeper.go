package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// keeper is the process that is left when the daemon dies. It holds the mount (the descriptor of /dev/fuse), the RAM
// tier and the lock on the state, starts daemons, and does nothing else, so that there is little in it to fail. As
// long as it lives the kernel lets callers wait while no daemon serves, and nobody notices.
//
// Everything runs in one goroutine, that of run; there is no lock.
type keeper struct {
	cfg       daemonConfig // what every daemon is told, but for FreshMount
	allow     bool         // other users may enter the mount
	keepRAM   bool         // leave the RAM tier where it is at a clean stop
	unsaved   int64        // bytes of pages that the daemon could not write to disk at a stop
	budget    time.Duration
	watchdog  time.Duration // a daemon that hangs for so long is killed; 0: never
	log       *slog.Logger
	io        streams
	manager   serviceManager
	lock      *fileLock
	ram       ramTier
	fuse      *fuseMount
	image     *binaryImage
	metrics   *os.File // listens for who wants metrics; nil: nobody is to
	limit     *restartLimit
	announced bool // the line on stdout was written

	daemon  *daemonProcess   // nil: none is running
	ready   time.Time        // when it said so; zero: not yet
	fatal   *message         // what it said before it gave itself up
	served  bool             // this mount has been served: the kernel knows nodes and handles
	restart <-chan time.Time // fires when the next daemon is due
	ping    pinger

	goal     goal
	overdue  <-chan time.Time // fires when the way to the goal takes too long
	tooLong  bool             // it has
	exitSent bool             // the daemon was told to exit
	flushed  bool             // it has written what was only in RAM, but for unsaved
	asked    time.Time        // when a signal asked for a stop
	stopBy   time.Time        // when a stop is to be over
	upgraded time.Time        // when the binary was last changed
	wanted   bool             // an upgrade was asked for while no daemon was ready

	done   bool
	result error
}

// goal is what the keeper is about.
type goal int

const (
	goalServe   goal = iota // have a daemon that serves
	goalUpgrade             // have the daemon end in peace, and start the binary that is on disk
	goalStop                // have the daemon end in peace, unmount, end
)

// upgradeLimit is how long a daemon has to finish what it is answering before an upgrade kills it. Nothing is lost
// then either: what it had not answered goes to the next one.
const upgradeLimit = 15 * time.Second

// signalBurst is how long after the signal that began a stop others are taken for the same one: timeout(1), for one,
// signals its child and then its process group.
const signalBurst = 250 * time.Millisecond

// run serves until a signal, an unmount or a hopeless daemon ends it. The error, if any, carries the exit code.
func (k *keeper) run(signals <-chan os.Signal) error {
	// The daemon is killed when the thread ends that started it, so that must be this one, to the end.
	runtime.LockOSThread()
	signal.Ignore(unix.SIGPIPE) // a log that nobody reads any more is no reason to die
	k.ping.start(k.watchdog, k.manager.watchdog)
	defer k.ping.stop()

	k.startDaemon()
	for !k.done {
		var events <-chan daemonEvent
		if k.daemon != nil {
			events = k.daemon.events
		}
		select {
		case s := <-signals:
			k.onSignal(s)
		case e := <-events:
			k.onEvent(e)
		case <-k.restart:
			k.restart = nil
			k.startDaemon()
		case <-k.overdue:
			k.onOverdue()
		case <-k.ping.due():
			k.onPing()
		}
	}
	return k.result
}

func (k *keeper) onSignal(s os.Signal) {
	switch {
	case s == unix.SIGHUP:
		k.upgrade()
	case k.goal == goalStop && time.Since(k.asked) < signalBurst:
		k.log.Debug("one more signal of the same stop", "signal", s.String())
	case k.goal == goalStop:
		k.stopAtOnce()
	default:
		k.log.Info("stopping", "signal", s.String())
		k.asked = time.Now()
		k.stop()
	}
}

// startDaemon starts the current binary. One that cannot even be started counts as one that died.
func (k *keeper) startDaemon() {
	cfg := k.cfg
	cfg.FreshMount = !k.served
	cfg.Resend = k.fuse.init.canResend()
	offered := k.fuse.init
	if k.fuse.reply != nil {
		offered = offered.masked(k.fuse.reply.flags())
		cfg.MaxWrite = k.fuse.reply.maxWrite()
	}
	k.ready, k.fatal, k.exitSent, k.flushed = time.Time{}, nil, false, false
	k.ping.reset()
	d, err := startDaemon(k.image.execPath(), &cfg, k.fuse.dev, k.metrics, offered, k.io.err)
	if err != nil {
		k.onDeath(death{at: time.Now(), how: err.Error()})
		return
	}
	k.daemon = d
}

// tell sends a message to the daemon. A daemon that does not take it is about to be missed by other ways.
func (k *keeper) tell(m message) {
	if err := k.daemon.control.send(m); err != nil {
		k.log.Debug("the daemon does not listen", "op", m.Op, "err", err)
	}
}

// announce says that the mount is ready, once to people and each time to the service manager.
func (k *keeper) announce(passthrough bool) {
	onOff := map[bool]string{true: "on", false: "off"}
	line := fmt.Sprintf("mounted on %s (state %s, RAM %s %s, passthrough %s, pid %d)", k.cfg.Mountpoint, k.cfg.StateDir,
		sizeValue(k.cfg.L1Bytes).people(), k.ram.describe(), onOff[passthrough], os.Getpid())
	if !k.announced {
		k.announced = true
		io.WriteString(k.io.out, "ckptfs: "+line+"\n")
	}
	if err := k.manager.ready(line); err != nil {
		k.log.Warn("the service manager cannot be told", "err", err)
	}
}
