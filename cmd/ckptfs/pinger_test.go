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
		p.pong(p.seq, 0, false)
	}
	if send, _ := p.tick(); !send {
		t.Fatal("no ping")
	}
	p.pong(p.seq-1, 0, false) // a late answer to an earlier ping is none to this one
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

// pongs answers n pings that say that so many requests have been taken.
func pongs(p *pinger, n int, taken uint64, unread bool) (well, hung bool) {
	for range n {
		p.tick()
		well, hung = p.pong(p.seq, taken, unread)
	}
	return well, hung
}

func TestPingerFindsADaemonThatTakesNothing(t *testing.T) {
	var p pinger
	p.start(4*time.Second, 0)
	defer p.stop()
	for _, c := range []struct {
		what   string
		n      int
		taken  uint64
		unread bool
		well   bool
		hung   bool
	}{
		{"the first pong", 1, 7, true, true, false},
		{"nothing to take", 100, 7, false, true, false},
		{"some lie there", 3, 7, true, false, false},
		{"one was taken, some lie there", 1, 8, true, true, false},
		{"some lie there again", 3, 8, true, false, false},
		{"for as long as the limit", 1, 8, true, false, true},
		{"it is ended once only", 1, 8, true, false, false},
		{"a daemon that does not count", 100, 0, true, true, false},
	} {
		if well, hung := pongs(&p, c.n, c.taken, c.unread); well != c.well || hung != c.hung {
			t.Errorf("%s: well %v, hung %v", c.what, well, hung)
		}
	}
}

func TestPingerTellsTheServiceManagerOnlyOfWhatIsWell(t *testing.T) {
	var p pinger
	p.start(0, 3*time.Second) // the keeper ends no daemon
	defer p.stop()
	pongs(&p, 1, 7, true)
	if well, hung := pongs(&p, 100, 7, true); well || hung {
		t.Errorf("well %v, hung %v", well, hung)
	}
	if p.tick(); p.seq == p.answered {
		t.Fatal("no ping")
	}
	if well, _ := p.pong(p.seq-1, 8, false); well {
		t.Errorf("an answer to a ping of long ago is taken for one")
	}
}
