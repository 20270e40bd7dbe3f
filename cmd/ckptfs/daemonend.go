package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// How a daemon ends: in an upgrade, at a shutdown, with its keeper, with the mount.

const (
	// upgradePause is how long an upgrade waits for what is being answered. Callers wait meanwhile. What takes longer
	// is left to the next daemon as it is, as after a crash.
	upgradePause = 2 * time.Second
	// shutdownPause is the same at a shutdown, when nobody is waited for any more.
	shutdownPause = 300 * time.Millisecond
)

// stopper is a filesystem that has more to do at a shutdown than Drain. unsavedBytes of pages are in RAM only then, and
// should not be.
type stopper interface {
	Stop(ctx context.Context) (unsavedBytes int64, err error)
}

// untilEnd does what the keeper says until there is nothing left to serve, and closes fs.
func (l *keeperLink) untilEnd(fs filesystem, dev *device, metrics *metricsServer, log *slog.Logger) error {
	var unfinished error
	flushed := false // shutDown has been called
	stop := func(limit time.Duration) {
		flushed = true
		reply := message{Op: opDrained, Reason: drainShutdown}
		var err error
		if reply.Unsaved, err = shutDown(fs, limit); err != nil {
			unfinished = fmt.Errorf("not everything that was under way could be finished: %w", err)
			log.Warn(unfinished.Error())
		}
		l.send(reply)
	}
	for {
		select {
		case m := <-l.drain:
			metrics.drain()
			if m.Reason == drainUpgrade {
				dev.hold(upgradePause)
				l.send(message{Op: opDrained, Reason: drainUpgrade})
			} else {
				stop(m.Limit)
			}
		case <-l.exit:
			quiet := dev.hold(shutdownPause)
			dev.leave()
			quiet = metrics.end(shutdownPause) && quiet
			if unfinished != nil || !quiet {
				// Something still uses fs, so it is left as it is. The next start finds it as after a crash.
				log.Debug("ending without closing", "quiet", quiet)
				return unfinished
			}
			return closeFS(fs)
		case <-dev.ended:
			l.send(message{Op: opUnmounted})
			if !flushed && l.unmounted() {
				metrics.drain()
				stop(drainTime(l.cfg.ShutdownBudget))
			}
			if unfinished != nil || !dev.hold(shutdownPause) || !metrics.end(shutdownPause) {
				return unfinished
			}
			return closeFS(fs)
		case <-l.lost:
			return errKeeperLost
		}
	}
}

// unmounted reports whether the mount is gone, and not only its connection: then there will be no other daemon.
func (l *keeperLink) unmounted() bool {
	table, err := mountTable()
	return err == nil && len(mountsAt(table, l.cfg.Mountpoint)) == 0
}

// drainTime is how much of the time for a stop the daemon has to write what is only in RAM.
func drainTime(budget time.Duration) time.Duration {
	if budget <= 0 {
		budget = defaultShutdownBudget // the keeper is older than this field
	}
	return budget * 3 / 4
}

// shutDown finishes what fs wants to finish while it is still served, within limit.
func shutDown(fs filesystem, limit time.Duration) (unsavedBytes int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if s, ok := fs.(stopper); ok {
		return s.Stop(ctx)
	}
	return 0, fs.Drain(ctx)
}

func closeFS(fs filesystem) error {
	if err := fs.Close(); err != nil {
		return fmt.Errorf("closing the state: %w", err)
	}
	return nil
}
