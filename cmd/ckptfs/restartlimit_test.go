package main

import (
	"testing"
	"time"
)

var limitEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRestartLimitGivesUpOnADaemonThatDiesAtOnce(t *testing.T) {
	l := newRestartLimit()
	var waited []time.Duration
	now := limitEpoch
	for range 5 {
		wait, giveUp := l.died(death{at: now})
		if giveUp {
			t.Fatalf("gave up after %d failures", len(waited)+1)
		}
		waited = append(waited, wait)
		now = now.Add(wait + 10*time.Millisecond)
	}
	if _, giveUp := l.died(death{at: now}); !giveUp {
		t.Errorf("6 failures within a second, and it goes on")
	}
	if waited[0] != 0 || waited[1] == 0 || waited[4] <= waited[1] {
		t.Errorf("waits are %v: the first start should be at once, the others later and later", waited)
	}
}

func TestRestartLimitGivesUpOnARequestThatKills(t *testing.T) {
	l := newRestartLimit()
	for i := range 6 {
		at := limitEpoch.Add(time.Duration(i) * time.Second)
		if _, giveUp := l.died(death{at: at, ready: at.Add(-50 * time.Millisecond)}); giveUp != (i == 5) {
			t.Errorf("death %d right after ready: giving up is %v", i+1, giveUp)
		}
	}
}

func TestRestartLimitSurvivesKills(t *testing.T) {
	l := newRestartLimit()
	for i := range 1000 {
		at := limitEpoch.Add(time.Duration(i) * 10 * time.Millisecond)
		if wait, giveUp := l.died(death{at: at, ready: at.Add(-time.Millisecond), killed: true}); giveUp || wait != 0 {
			t.Fatalf("kill %d of a serving daemon: wait %v, giving up is %v", i+1, wait, giveUp)
		}
	}
	for i := range 61 {
		at := limitEpoch.Add(time.Hour + time.Duration(i)*10*time.Millisecond)
		if _, giveUp := l.died(death{at: at, killed: true}); giveUp != (i == 60) {
			t.Fatalf("kill %d before ready: giving up is %v", i+1, giveUp)
		}
	}
}

func TestRestartLimitForgets(t *testing.T) {
	l := newRestartLimit()
	for i := range 100 {
		at := limitEpoch.Add(time.Duration(i) * 20 * time.Second)
		if _, giveUp := l.died(death{at: at}); giveUp {
			t.Fatalf("gave up at failure %d, one every 20 s", i+1)
		}
	}
	for i := range 100 {
		at := limitEpoch.Add(time.Hour + time.Duration(i)*3*time.Second)
		if wait, giveUp := l.died(death{at: at, ready: at.Add(-3 * time.Second)}); giveUp || wait != 0 {
			t.Fatalf("a daemon that served 3 s counts as failed")
		}
	}
}
