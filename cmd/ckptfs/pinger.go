package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// A daemon that hangs is found by asking it. Two things count as a hang, if they last as long as --watchdog:
//
//   - A ping is not answered. The daemon answers once the locks could be had that most requests need, so a process that
//     is stopped, a runtime that stands still and a deadlock are found.
//   - Pings are answered, but requests lie in the kernel's queue and none is taken from it.
//
// What is slow is no hang: a manifest that waits for RAM, a page that waits for a disk, a call that never returns. As
// long as the daemon takes the other calls, those wait for a reason that another daemon would have too.
//
// Pings are counted, not timed: a machine that was suspended, or a keeper that was stopped, does not make a daemon
// look dead.

// maxPingEvery is the longest time between two pings.
const maxPingEvery = 5 * time.Second

// pinger counts the pings of one daemon at a time. The zero value never pings.
type pinger struct {
	ticker    *time.Ticker
	maxMissed int // 0: no daemon is killed for it
	seq       int
	answered  int
	missed    int    // ticks without an answer
	taken     uint64 // what the last pong said
	stalled   int    // pongs in a row by which no request was taken though some lay there
}

// start begins to tick. limit is how long a daemon may be silent (0: for ever), expected how often the service
// manager wants to hear that all is well (0: never).
func (p *pinger) start(limit, expected time.Duration) {
	every := maxPingEvery
	if limit > 0 {
		every = min(every, limit/4)
	}
	if expected > 0 {
		every = min(every, expected/3)
	}
	if (limit <= 0 && expected <= 0) || every <= 0 {
		return
	}
	p.ticker = time.NewTicker(every)
	if limit > 0 {
		p.maxMissed = int((limit + every - 1) / every)
	}
}

func (p *pinger) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}

// due ticks when it is time for tick.
func (p *pinger) due() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C
}

// reset is for a new daemon.
func (p *pinger) reset() { p.answered, p.missed, p.taken, p.stalled = p.seq, 0, 0, 0 }

// tick says whether to send a ping now, or that the daemon has been silent for too long.
func (p *pinger) tick() (send, hung bool) {
	if p.seq == p.answered {
		p.seq++
		return true, false
	}
	p.missed++
	return false, p.maxMissed > 0 && p.missed == p.maxMissed
}

// pong takes the answer to ping seq. taken is the daemon's count of requests (0: it does not say), unread whether some
// lie in the kernel's queue at this moment. It reports whether all is well, or that the daemon has taken nothing for
// too long.
func (p *pinger) pong(seq int, taken uint64, unread bool) (well, hung bool) {
	if seq != p.seq {
		return false, false
	}
	p.answered, p.missed = seq, 0
	if unread && taken != 0 && taken == p.taken {
		p.stalled++
	} else {
		p.stalled = 0
	}
	p.taken = taken
	return p.stalled == 0, p.maxMissed > 0 && p.stalled == p.maxMissed
}

// onPing asks the daemon whether it is well, and ends one that has not answered for too long.
func (k *keeper) onPing() {
	if k.daemon == nil {
		return
	}
	send, hung := k.ping.tick()
	if send {
		k.tell(message{Op: opPing, Seq: k.ping.seq})
	}
	if hung {
		k.replaceHung("the daemon does not answer and is replaced")
	}
}

// onPong looks whether a daemon that answers also takes requests. While it is being stopped or upgraded it does not,
// and before it is ready it can't; then its answer is enough. The service manager hears only of what is well.
func (k *keeper) onPong(m message) {
	serves := k.goal == goalServe && !k.ready.IsZero()
	well, hung := k.ping.pong(m.Seq, m.Taken, serves && k.fuse.unread())
	if hung {
		k.replaceHung("the daemon takes no requests and is replaced")
	}
	if !well {
		return
	}
	err := error(nil)
	if !k.announced {
		err = k.manager.starting()
	}
	if err == nil && k.manager.watchdog > 0 {
		err = k.manager.alive()
	}
	if err != nil {
		k.log.Warn("the service manager cannot be told", "err", err)
	}
}

func (k *keeper) replaceHung(text string) {
	k.log.Error(text, "pid", k.daemon.pid(), "for", k.watchdog, "calls_waiting", k.fuse.control.waiting())
	k.daemon.killHung()
}

// unread reports whether requests lie in the kernel's queue that no daemon has taken.
func (m *fuseMount) unread() bool {
	poll := []unix.PollFd{{Fd: int32(m.dev.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&unix.POLLIN != 0
}
