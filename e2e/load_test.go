package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A load is a client process that makes calls without pause, and knows the
// right answer of each. Any other answer ends it with an error.

// loadConfig is what a load process is told at its start.
type loadConfig struct {
	Kind  string       `json:"kind"`
	Mount string       `json:"mount"`
	Ident string       `json:"ident"`
	ID    identity     `json:"id"`
	Seed  uint64       `json:"seed"`
	Base  []generation `json:"base"` // published in Ident for the whole run, by others
}

// loadReport is one line from a load process: now and then, and at its end.
type loadReport struct {
	Ops       int64             `json:"ops"`
	Done      bool              `json:"done"`
	Err       string            `json:"err,omitempty"`
	Published []conversationRef `json:"published,omitempty"`
}

// conversationRef names a generation that a publisher left published.
type conversationRef struct {
	Seed uint64 `json:"seed"`
	N    int    `json:"n"`
}

func (p conversationRef) generation(id identity) generation {
	return smallGeneration(id, conversation(p.Seed, p.N))
}

// worker is the inside of a load process.
type worker struct {
	loadConfig
	rnd       *rand.Rand
	published []conversationRef
	open      []heldPage
	ranks     []*agent
}

var loadKinds = map[string]func(*worker) error{
	"publisher": (*worker).publishOnce,
	"reader":    (*worker).readOnce,
	"names":     (*worker).namesOnce,
	"racer":     (*worker).raceOnce,
	"lister":    (*worker).listOnce,
}

// loadRole repeats one kind of work until its input ends.
func loadRole(in *json.Decoder, out *json.Encoder) {
	var w worker
	if err := in.Decode(&w.loadConfig); err != nil {
		return
	}
	w.rnd = rand.New(rand.NewPCG(w.Seed, 1))
	var stop atomic.Bool
	go func() {
		var end any
		in.Decode(&end)
		stop.Store(true)
	}()
	var report loadReport
	for !stop.Load() {
		if err := loadKinds[w.Kind](&w); err != nil {
			report.Err = fmt.Sprintf("%s, seed %d, round %d: %v", w.Kind, w.Seed, report.Ops, err)
			break
		}
		report.Ops++
		if out.Encode(report) != nil {
			return
		}
	}
	for _, h := range w.open {
		h.release()
	}
	for _, a := range w.ranks {
		a.end()
	}
	report.Done, report.Published = true, w.published
	out.Encode(report)
}

// load is the test's end of a load process.
type load struct {
	*agent
	rounds atomic.Int64
	end    chan loadReport
}

func startLoad(t testing.TB, cfg loadConfig) *load {
	t.Helper()
	l := &load{agent: spawn(t, "load", 0), end: make(chan loadReport, 1)}
	if err := l.enc.Encode(cfg); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			var r loadReport
			if err := l.dec.Decode(&r); err != nil {
				l.end <- loadReport{Err: fmt.Sprintf("%s: the process ended: %v", cfg.Kind, err)}
				return
			}
			l.rounds.Store(r.Ops)
			if r.Done {
				l.end <- r
				return
			}
		}
	}()
	return l
}

// finishLoad ends the load and returns its last report.
func (l *load) finishLoad(t testing.TB) loadReport {
	t.Helper()
	l.in.Close()
	select {
	case r := <-l.end:
		l.end <- r
		return r
	case <-time.After(2 * patience):
		l.kill()
		t.Fatal("a load process does not end: a call hangs")
	}
	return loadReport{}
}

// failed returns the report of a load that has ended by itself.
func (l *load) failed() string {
	select {
	case r := <-l.end:
		l.end <- r
		return r.Err
	default:
		return ""
	}
}

// loads are several of them.
type loads []*load

func (ls loads) rounds() (n int64) {
	for _, l := range ls {
		n += l.rounds.Load()
	}
	return n
}

// advance waits until n more rounds of work were done, each load one at least.
func (ls loads) advance(t testing.TB, n int64) {
	t.Helper()
	before, start := make([]int64, len(ls)), ls.rounds()
	for i, l := range ls {
		before[i] = l.rounds.Load()
	}
	eventually(t, "the loads go on", func() error {
		var errs []string
		for i, l := range ls {
			if e := l.failed(); e != "" {
				t.Fatal(e)
			}
			if l.rounds.Load() == before[i] {
				errs = append(errs, fmt.Sprintf("load %d stands still", i))
			}
		}
		if ls.rounds() < start+n {
			errs = append(errs, fmt.Sprintf("%d rounds more", ls.rounds()-start))
		}
		if len(errs) > 0 {
			return errors.New(strings.Join(errs, ", "))
		}
		return nil
	})
}

// finish ends all loads; each must have had nothing but right answers.
func (ls loads) finish(t testing.TB) {
	t.Helper()
	var wg sync.WaitGroup
	for _, l := range ls {
		wg.Go(func() {
			if r := l.finishLoad(t); r.Err != "" {
				t.Error(r.Err)
			}
		})
	}
	wg.Wait()
}

// heldPage is a page that a load keeps open over many rounds, by handle and by mapping.
type heldPage struct {
	file *os.File
	mem  []byte
	page page
}
