package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// keeperLink is the keeper, seen from the daemon.
type keeperLink struct {
	*controlConn
	cfg    *daemonConfig
	goOn   chan struct{} // closed at opGo
	drain  chan message  // opDrain
	exit   chan struct{} // closed at opExit
	lost   chan struct{} // closed when the keeper is gone
	fs     atomic.Pointer[filesystem]
	dev    atomic.Pointer[device]
	asking sync.Mutex // one question to the filesystem at a time
}

// connectKeeper takes the configuration from the keeper and begins to answer it.
func connectKeeper() (*keeperLink, error) {
	if err := unix.SetNonblock(daemonControlFD, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &keeperLink{
		controlConn: newControlConn(os.NewFile(daemonControlFD, "keeper")),
		goOn:        make(chan struct{}),
		drain:       make(chan message, 2), // a stop may follow an upgrade
		exit:        make(chan struct{}),
		lost:        make(chan struct{}),
	}
	m, err := l.receive()
	if err != nil || m.Op != opConfig || m.Config == nil {
		return nil, fmt.Errorf("the keeper sent no configuration (%q): %w", m.Op, err)
	}
	l.cfg = m.Config
	go l.listen()
	return l, nil
}

// listen takes what the keeper sends. Pings are answered from here as soon as there is a daemon, so that a long start
// is not taken for a hang.
func (l *keeperLink) listen() {
	defer close(l.lost)
	var once struct{ goOn, exit sync.Once }
	for {
		m, err := l.receive()
		if err != nil {
			return
		}
		switch m.Op {
		case opGo:
			once.goOn.Do(func() { close(l.goOn) })
		case opExit:
			once.exit.Do(func() { close(l.exit) })
		case opDrain:
			select {
			case l.drain <- m:
			default: // both are under way
			}
		case opPing:
			go l.answer(m)
		}
	}
}

// watch makes the answers to pings depend on fs.
func (l *keeperLink) watch(fs filesystem) { l.fs.Store(&fs) }

// serving makes them count what dev takes.
func (l *keeperLink) serving(dev *device) { l.dev.Store(dev) }

// answer is a pong, once the filesystem has answered too.
func (l *keeperLink) answer(ping message) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if fs := l.fs.Load(); fs != nil {
		(*fs).Probe()
	}
	pong := message{Op: opPong, Seq: ping.Seq}
	if dev := l.dev.Load(); dev != nil {
		pong.Taken = dev.taken.Load() + 1
	}
	l.send(pong)
}

var errKeeperLost = errors.New("the keeper is gone")

// awaitGo waits until the kernel has the reply to its INIT.
func (l *keeperLink) awaitGo() error {
	select {
	case <-l.goOn:
		return nil
	case <-l.lost:
		return errKeeperLost
	}
}
