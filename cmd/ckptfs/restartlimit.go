package main

import "time"

// A daemon that dies is started again. restartLimit decides how soon, and when there is no point in going on.
//
// A death counts against the limit only if the daemon is to blame: it ended before it served, or it failed by itself
// (exit, panic, fault) within servedAfter of being ready. One that was killed with SIGKILL after it was ready does not
// count at all, however often that happens: somebody outside does it (an operator, the OOM killer, a test), and each
// daemon did serve. Killed before it was ready counts, but against a much larger number.
type restartLimit struct {
	window      time.Duration // deaths older than this are forgotten
	maxFailed   int           // own failures within window, beyond which it gives up
	maxKilled   int           // SIGKILLs before ready within window, beyond which it gives up
	servedAfter time.Duration // a daemon that lived this long after it was ready has served
	backoff     time.Duration // wait before the second start after own failures; doubles each time
	maxBackoff  time.Duration

	failed, killed []time.Time
}

// death is how a daemon ended.
type death struct {
	at     time.Time
	ready  time.Time // zero: it never was
	killed bool      // by SIGKILL
	clean  bool      // exit code 0
	pid    int       // 0: it could not even be started
	how    string    // in words
}

func newRestartLimit() *restartLimit {
	return &restartLimit{
		window: time.Minute, maxFailed: 5, maxKilled: 60,
		servedAfter: 2 * time.Second, backoff: 50 * time.Millisecond, maxBackoff: 2 * time.Second,
	}
}

// died takes note of a death and says how long to wait before the next start, or that there should be none.
func (l *restartLimit) died(d death) (wait time.Duration, giveUp bool) {
	l.failed, l.killed = forget(l.failed, d.at.Add(-l.window)), forget(l.killed, d.at.Add(-l.window))
	served := !d.ready.IsZero() && (d.killed || d.at.Sub(d.ready) >= l.servedAfter)
	switch {
	case served:
		return 0, false
	case d.killed:
		l.killed = append(l.killed, d.at)
		return 0, len(l.killed) > l.maxKilled
	}
	l.failed = append(l.failed, d.at)
	n := len(l.failed)
	if n > l.maxFailed {
		return 0, true
	}
	if n == 1 {
		return 0, false
	}
	return min(l.backoff<<(n-2), l.maxBackoff), false
}

// forget drops the times before since; times are in order.
func forget(times []time.Time, since time.Time) []time.Time {
	for len(times) > 0 && times[0].Before(since) {
		times = times[1:]
	}
	return times
}
