package main

import (
	"errors"
	"fmt"
	"time"
)

// How the keeper ends a daemon, or itself.

// upgrade has the daemon finish what it is answering; the next one is the binary that is on disk by then. Asked for
// while none is ready, it waits until one is; while none is running, because the last one died, the next one is that
// binary at once.
func (k *keeper) upgrade() {
	if k.goal != goalServe {
		return
	}
	if k.daemon == nil {
		k.log.Info("upgrading: the next daemon is the binary on disk", "path", k.image.path)
		k.tellReloading()
		k.takeNewBinary()
		return
	}
	k.wanted = k.ready.IsZero()
	if k.wanted {
		return
	}
	k.log.Info("upgrading", "path", k.image.path)
	k.tellReloading()
	k.goal = goalUpgrade
	k.overdue = time.After(upgradeLimit)
	k.tell(message{Op: opDrain, Reason: drainUpgrade, Limit: upgradePause})
}

func (k *keeper) tellReloading() {
	if err := k.manager.reloading(); err != nil {
		k.log.Warn("the service manager cannot be told", "err", err)
	}
}

func (k *keeper) takeNewBinary() {
	k.upgraded = time.Now()
	k.cfg.Keeper.UpgradeError = ""
	if err := k.image.advance(); err != nil {
		k.cfg.Keeper.UpgradeError = err.Error()
		k.log.Error("the new binary cannot be used, the one before goes on", "err", err)
	}
}

// stop has the daemon finish, unmounts and ends. All of it fits the budget.
func (k *keeper) stop() {
	k.beginStop()
	if k.daemon == nil {
		k.finish(false, "no daemon was running")
		return
	}
	k.drainToStop()
}

func (k *keeper) beginStop() {
	k.goal = goalStop
	k.restart = nil
	k.stopBy = time.Now().Add(k.budget)
	k.overdue = time.After(k.budget)
	if err := k.manager.stopping(); err != nil {
		k.log.Warn("the service manager cannot be told", "err", err)
	}
}

// drainToStop has the daemon write what is only in RAM, in what is left of the budget.
func (k *keeper) drainToStop() {
	left := time.Until(k.stopBy)
	k.overdue = time.After(left)
	k.tell(message{Op: opDrain, Reason: drainShutdown, Limit: drainTime(max(left, time.Millisecond))})
}

// stopAnother starts a daemon only to stop it. The one before had been told to make way for an upgrade when the stop
// was asked for, and has ended without writing anything: what it had in RAM only would be lost.
func (k *keeper) stopAnother() {
	k.log.Info("the daemon had ended for an upgrade, another one writes what is only in RAM")
	k.startDaemon()
	k.restart = nil
	switch {
	case k.done:
	case k.daemon == nil:
		k.finish(false, "none could be started to write what is only in RAM")
	default:
		k.drainToStop()
	}
}

// onDrained goes on with what opDrain was for.
func (k *keeper) onDrained(reason string) {
	if k.goal == goalServe {
		return
	}
	if k.goal == goalStop {
		if reason == drainUpgrade {
			return // asked for before the stop, whose answer follows
		}
		k.flushed = true
		// While the daemon still answers: an unmount may have to write back what was mapped.
		if err := k.fuse.unmount(min(2*time.Second, k.budget/4)); err != nil {
			k.log.Warn("unmounting", "mountpoint", k.fuse.point, "err", err)
		}
	}
	k.exitSent = true
	k.tell(message{Op: opExit})
}

// onOverdue ends a daemon that does not end by itself; onEnd goes on.
func (k *keeper) onOverdue() {
	k.overdue = nil
	if k.daemon != nil {
		k.log.Warn("the daemon takes too long and is killed", "pid", k.daemon.pid())
		k.tooLong = k.goal == goalStop
		k.daemon.kill()
	}
}

// stopAtOnce is the second SIGTERM: nothing is waited for. What is in RAM stays there for the next start.
func (k *keeper) stopAtOnce() {
	k.daemonGone()
	k.done, k.result = true, withCode(exitForced, fmt.Errorf("ended at once by a second signal; what is in RAM is kept at %s", k.ram.dir))
}

// finish is the end of a stop. Clean means that the daemon had closed everything.
func (k *keeper) finish(clean bool, how string) {
	k.daemonGone()
	k.done = true
	if !clean && k.tooLong {
		// The budget is over (a hung disk, a stuck writer). That is no failure of the stop: nothing is lost, because
		// what is in RAM stays there.
		k.log.Warn("stopped at the end of the budget; what is in RAM is kept for the next start", "dir", k.ram.dir)
		return
	}
	if !clean {
		k.result = fmt.Errorf("the daemon did not stop in time or failed (%s); what is in RAM is kept at %s", how, k.ram.dir)
		return
	}
	k.releaseRAM()
	k.log.Info("stopped")
}

// releaseRAM gives the RAM tier's memory back after a clean stop, unless it is to be kept for the next start.
func (k *keeper) releaseRAM() {
	switch {
	case k.keepRAM:
		k.log.Info("the RAM tier is kept", "dir", k.ram.dir)
		return
	case k.unsaved > 0:
		k.log.Warn("the RAM tier is kept for the next start, since not all of it could be written to disk; to lose that, "+k.ram.howToLose(), "dir", k.ram.dir, "bytes", k.unsaved)
		return
	}
	if err := k.ram.release(); err != nil {
		k.log.Warn("the RAM tier cannot be released", "dir", k.ram.dir, "err", err)
	}
}

// giveUp ends everything after a daemon that cannot be made to serve. A RAM tier that may hold pages stays for the
// next start.
func (k *keeper) giveUp(how string) {
	k.daemonGone()
	code := exitDaemon
	text := "the daemon died again and again and is given up; the last time: " + how
	if k.fatal != nil {
		text = "the daemon cannot serve: " + how
		if k.fatal.Code != 0 {
			code = k.fatal.Code
		}
	}
	if k.announced || k.ram.adopted {
		text += "; what is in RAM is kept at " + k.ram.dir + " for the next start"
	} else {
		k.releaseRAM()
	}
	k.done, k.result = true, withCode(code, errors.New(text))
}

// daemonGone ends the connection and the mount, and with it whoever still serves or uses it.
func (k *keeper) daemonGone() {
	if k.daemon != nil {
		k.daemon.kill()
	}
	k.fuse.abort()
	if k.fuse.mounted() {
		if err := detach(k.fuse.point); err != nil {
			k.log.Warn("unmounting", "mountpoint", k.fuse.point, "err", err)
		}
	}
}

// remount replaces a mount whose callers cannot be saved by a new one.
func (k *keeper) remount() {
	k.daemonGone()
	fuse, err := mountFUSE(k.fuse.point, k.allow, k.log)
	if err != nil {
		k.done, k.result = true, err
		return
	}
	k.fuse, k.served = fuse, false
	if err := k.lock.describe(mountRecord(fuse)); err != nil {
		k.log.Warn("the mount could not be recorded in the state directory", "err", err)
	}
}
