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
	for {
		select {
		case m := <-l.drain:
			metrics.drain()
			reply := message{Op: opDrained}
			if m.Reason == drainUpgrade {
				dev.hold(upgradePause)
			} else {
				var err error
				if reply.Unsaved, err = shutDown(fs, m.Limit); err != nil {
					unfinished = fmt.Errorf("not everything that was under way could be finished: %w", err)
					log.Warn(unfinished.Error())
				}
			}
			l.send(reply)
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
			if !dev.hold(shutdownPause) || !metrics.end(shutdownPause) {
				return unfinished
			}
			return closeFS(fs)
		case <-l.lost:
			return errKeeperLost
		}
	}
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
