package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/pages"
)

// daemonVerb is the hidden command by which the keeper starts the daemon.
const daemonVerb = "daemon"

// heapGrowth is by how many percent the heap may grow until the next garbage collection. Nearly all of it is tables that
// stay, and what requests allocate is little, so collections are rare all the same, and memory is what engines want.
const heapGrowth = 50

// filesystem is what the daemon serves.
type filesystem interface {
	fuse.RawFileSystem
	// Drain lets what is under way be answered and begins nothing new that changes anything; such requests wait. It
	// returns when the last is answered, or when ctx ends. Called at a shutdown, if there is no Stop.
	Drain(ctx context.Context) error
	// Probe returns when the locks that most requests need could be had; it waits for no disk. The keeper replaces a
	// daemon in which it does not return.
	Probe()
	// Close leaves everything as the next process wants to find it. No request is under way when it is called.
	Close() error
}

// passthroughSetter is a filesystem that wants to know, before it serves, whether the kernel moves page bytes.
type passthroughSetter interface{ SetPassthrough(on bool) }

// newFSFunc opens the state and gives the filesystem of a daemon.
type newFSFunc func(cfg *daemonConfig, log *slog.Logger) (filesystem, error)

// daemonCommandEntry is the daemon as an entry of the command table.
func daemonCommandEntry(newFS newFSFunc) command {
	return command{name: daemonVerb, hidden: true, run: func(_ context.Context, _ []string, io streams) error {
		return runDaemon(newFS, io)
	}}
}

// runDaemon serves the mount whose keeper is the parent process, until that says otherwise.
func runDaemon(newFS newFSFunc, io streams) error {
	for fd := daemonFuseFD; fd <= daemonCrashFD; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return withCode(exitUsage, errors.New("this command is not for people; use 'ckptfs mount'"))
		}
	}
	// The keeper decides when to end. A service manager that signals all processes, or a terminal, means that one.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	pages.ShortSlices()
	os.WriteFile("/proc/self/comm", []byte("ckptfs"), 0)
	if err := debug.SetCrashOutput(os.NewFile(daemonCrashFD, "crash"), debug.CrashOptions{}); err != nil {
		return err
	}
	link, err := connectKeeper()
	if err != nil {
		return err
	}
	cfg := link.cfg
	if os.Getppid() != cfg.Keeper.PID {
		return fmt.Errorf("the keeper (pid %d) is gone", cfg.Keeper.PID)
	}
	log, err := cfg.Log.newLogger(io.err)
	if err != nil {
		return err
	}
	slog.SetDefault(log) // for what go-fuse says by package log
	raiseFileLimit(log)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	metrics, err := startMetrics(cfg, log)
	if err == nil {
		err = serve(newFS, link, metrics, log)
	}
	if err != nil {
		link.send(message{Op: opFatal, Reason: err.Error(), Code: fatalCode(err)})
		return err
	}
	return nil
}

// fatalCode is the exit code that err asks the keeper for; 0 if it has none of its own.
func fatalCode(err error) int {
	if code := exitCodeOf(err); code != exitFailure {
		return code
	}
	return 0
}

// serve opens the filesystem, takes over the kernel's connection and serves until the end.
func serve(newFS newFSFunc, link *keeperLink, metrics *metricsServer, log *slog.Logger) error {
	began := time.Now()
	lock, err := lockFileWithin(filepath.Join(link.cfg.StateDir, daemonLockName), true, formerDaemonLimit)
	if err != nil {
		return fmt.Errorf("a former daemon has not ended: %w", err)
	}
	defer lock.release()
	if err := lock.describe(fmt.Sprintf("pid %d", os.Getpid())); err != nil {
		return withCode(exitState, err)
	}
	fs, err := newFS(link.cfg, log)
	if err != nil {
		return err
	}
	link.watch(fs)
	opts := fuseOptions(link.cfg, log)
	server, err := fuse.NewServer(fs, fmt.Sprintf("/dev/fd/%d", daemonServeFD), opts)
	if err != nil {
		return errors.Join(fmt.Errorf("negotiating with the kernel: %w", err), fs.Close())
	}
	dev, err := newDevice(fs, server, opts, log)
	if err == nil {
		err = link.awaitGo()
	}
	var passthrough bool
	if err == nil {
		passthrough, err = takeOver(link.cfg, fs)
	}
	if err != nil {
		return errors.Join(err, fs.Close())
	}
	// Before the first request is read: once the keeper has this, the next daemon is no longer the first.
	if err := link.send(message{Op: opReady, Passthrough: passthrough, Version: buildVersion()}); err != nil {
		return err
	}
	dev.start()
	link.serving(dev)
	metrics.serving(fs)
	log.Debug("serving", "took", time.Since(began))
	return link.untilEnd(fs, dev, metrics, log)
}
