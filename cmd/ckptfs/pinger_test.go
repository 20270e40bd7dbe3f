package main

import (
	"testing"
	"time"
)

func TestPingerFindsAHungDaemon(t *testing.T) {
	var p pinger
	p.start(4*time.Second, 0)
	defer p.stop()
	for range 10 { // a daemon that answers
		if send, hung := p.tick(); !send || hung {
			t.Fatalf("send %v, hung %v", send, hung)
		}
		p.pong(p.seq)
	}
	if send, _ := p.tick(); !send {
		t.Fatal("no ping")
	}
	p.pong(p.seq - 1) // a late answer to an earlier ping is none to this one
	silent := 0
	for hung := false; !hung && silent < 100; silent++ {
		_, hung = p.tick()
	}
	if silent != 4 {
		t.Errorf("found after %d intervals of 1 s, want 4", silent)
	}
	if _, hung := p.tick(); hung {
		t.Errorf("it is to be ended once only")
	}
	p.reset()
	if send, hung := p.tick(); !send || hung {
		t.Errorf("the next daemon: send %v, hung %v", send, hung)
	}
}

func TestPingerThatIsNotWanted(t *testing.T) {
	var p pinger
	p.start(0, 0)
	if p.due() != nil {
		t.Errorf("it ticks")
	}
	p.stop()
	p.start(0, 3*time.Second) // only the service manager wants to hear
	defer p.stop()
	p.tick()
	for range 1000 {
		if _, hung := p.tick(); hung {
			t.Fatal("a daemon is killed although nobody asked for it")
		}
	}
}
