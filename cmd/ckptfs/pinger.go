package main

import "time"

// A daemon that hangs is found by asking it. Pings are counted, not timed: a machine that was suspended, or a keeper
// that was stopped, does not make a daemon look dead.

// maxPingEvery is the longest time between two pings.
const maxPingEvery = 5 * time.Second

// pinger counts the pings of one daemon at a time. The zero value never pings.
type pinger struct {
	ticker    *time.Ticker
	maxMissed int // 0: no daemon is killed for it
	seq       int
	answered  int
	missed    int
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
func (p *pinger) reset() { p.answered, p.missed = p.seq, 0 }

// tick says whether to send a ping now, or that the daemon has been silent for too long.
func (p *pinger) tick() (send, hung bool) {
	if p.seq == p.answered {
		p.seq++
		return true, false
	}
	p.missed++
	return false, p.maxMissed > 0 && p.missed == p.maxMissed
}

// pong takes the answer to ping seq.
func (p *pinger) pong(seq int) {
	if seq == p.seq {
		p.reset()
	}
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
		k.log.Error("the daemon does not answer and is replaced", "pid", k.daemon.pid(), "silent", k.watchdog)
		k.daemon.killHung()
	}
}

func (k *keeper) onPong(m message) {
	k.ping.pong(m.Seq)
	if k.manager.watchdog > 0 {
		if err := k.manager.alive(); err != nil {
			k.log.Warn("the service manager cannot be told", "err", err)
		}
	}
}
