package main

import (
	"os"
	"syscall"
	"time"
)

// What the keeper does about what the daemon does.

// upgradeTrial is how long a new binary is on trial: if it fails by itself within this time, the one before is back.
const upgradeTrial = 10 * time.Second

func (k *keeper) onEvent(e daemonEvent) {
	switch {
	case e.reply != nil:
		k.onReply(e.reply)
	case e.msg != nil:
		k.onMessage(*e.msg)
	default:
		k.onEnd(e.ended)
	}
}

// onReply takes the daemon's reply to INIT: to the kernel the first time, afterwards only to compare it.
func (k *keeper) onReply(r initReply) {
	err := r.valid()
	if err == nil && k.fuse.reply == nil {
		err = k.fuse.accept(r)
	}
	if err != nil {
		k.log.Error("the daemon cannot serve this mount", "err", err)
		k.daemon.kill()
		return
	}
	if was, is := k.fuse.reply.flags(), r.flags(); was != is {
		k.log.Error("the daemon would agree on other capabilities with the kernel than the first one did; a new mount is needed to use them",
			"agreed", was, "daemon", is)
	}
	k.tell(message{Op: opGo})
}

func (k *keeper) onMessage(m message) {
	switch m.Op {
	case opReady:
		k.onReady(m)
	case opPong:
		k.onPong(m)
	case opDrained:
		k.unsaved = m.Unsaved
		k.onDrained(m.Reason)
	case opUnmounted:
		k.log.Info("the kernel has ended the connection")
		if k.goal == goalServe && !k.fuse.mounted() {
			k.beginStop() // the daemon knows, and writes what is only in RAM
		}
	case opFatal:
		k.fatal = &m
	}
}

func (k *keeper) onReady(m message) {
	k.ready, k.served = time.Now(), true
	k.log.Info("the daemon serves", "pid", k.daemon.pid(), "version", m.Version, "passthrough", m.Passthrough)
	k.announce(m.Passthrough)
	if k.wanted {
		k.upgrade()
	}
}

// onEnd is called once for every daemon that was started.
func (k *keeper) onEnd(state *os.ProcessState) {
	d := k.daemon
	how, pid := d.epitaph(state), d.pid()
	d.closeFiles()
	k.daemon, k.overdue = nil, nil
	switch k.goal {
	case goalStop:
		clean := k.exitSent && succeeded(state)
		if clean && !k.flushed {
			k.stopAnother()
			return
		}
		k.finish(clean, how)
	case goalUpgrade:
		k.goal = goalServe
		k.takeNewBinary()
		k.startDaemon()
	default:
		k.onDeath(death{at: time.Now(), ready: k.ready, killed: wasKilled(state), clean: succeeded(state), pid: pid, how: how})
	}
}

// onDeath decides how to go on after a daemon that ended without having been asked to.
func (k *keeper) onDeath(d death) {
	if k.fatal != nil {
		d.how = k.fatal.Reason
	}
	if !k.fuse.alive() {
		if !k.fuse.mounted() {
			k.log.Info("the filesystem was unmounted")
			k.finish(d.clean, d.how)
			return
		}
		k.log.Warn("the connection was aborted from outside, mounting anew")
		k.remount()
	} else if k.served && !k.fuse.init.canResend() {
		k.log.Warn("this kernel cannot send requests again, mounting anew: callers get ENOTCONN")
		k.remount()
	}
	if k.done {
		return
	}
	if !d.killed && d.at.Sub(k.upgraded) < upgradeTrial && k.image.goBack(k.log) {
		k.cfg.Keeper.UpgradeError = d.how
		k.log.Error("the new binary failed", "how", d.how)
		k.startDaemon()
		return
	}
	wait, giveUp := k.limit.died(d)
	if giveUp || (k.fatal != nil && !k.announced) {
		k.giveUp(d.how)
		return
	}
	k.cfg.Keeper.Restarts++
	k.cfg.Keeper.LastDeath, k.cfg.Keeper.LastDeathAt = d.how, d.at
	k.log.Warn("the daemon died, starting it again", "pid", d.pid, "how", d.how, "wait", wait)
	if wait == 0 {
		k.startDaemon()
		return
	}
	k.restart = time.After(wait)
}

func succeeded(state *os.ProcessState) bool { return state != nil && state.Success() }

// wasKilled reports whether SIGKILL ended the process: somebody else's doing.
func wasKilled(state *os.ProcessState) bool {
	if state == nil {
		return false
	}
	ws, ok := state.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}
