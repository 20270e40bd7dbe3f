package retention

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const grace = 5 * time.Minute

// talk publishes conversations as an engine would.
type talk struct {
	p       Policy
	now     time.Duration
	next    ID
	request uint64
	tip     map[int]Generation // each conversation's last generation to continue
	last    map[int]ID         // the prompt that its tip belongs to
}

func newTalk(p Policy) *talk {
	return &talk{p: p, tip: map[int]Generation{}, last: map[int]ID{}}
}

func (k *talk) publish(kind Kind, parent Generation, superseded ...ID) Generation {
	k.next++
	g := Generation{ID: k.next, Identity: 1, Request: k.request, Kind: kind, Tokens: parent.Tokens + 5, Parent: parent.ID}
	k.p.Published(k.now, g, superseded)
	return g
}

// turn continues conversation c from its tip, as agents do.
func (k *talk) turn(c int) {
	k.request++
	k.now += time.Second
	tip, ok := k.tip[c]
	var old []ID
	if ok {
		k.p.Hit(k.now, tip.ID)
		old = append(old, k.last[c])
	}
	prompt := k.publish(Prompt, tip, old...)
	k.tip[c], k.last[c] = k.publish(Response, prompt), prompt.ID
}

// dirty presents generations with an own dirty page each.
func dirty(ids ...ID) []Resident {
	var out []Resident
	for _, id := range ids {
		out = append(out, Resident{Gen: id, Own: Bytes{Dirty: 1}})
	}
	return out
}

func (k *talk) victims(res []Resident) []Decision { return slices.Collect(k.p.Victims(k.now, res)) }

func newAdaptive() *Adaptive { return NewAdaptive(grace, DefaultCosts()) }

// TestNeutral: before anything is learned, the least recently used goes first,
// written and not dropped.
func TestNeutral(t *testing.T) {
	k := newTalk(newAdaptive())
	for c := range 4 {
		k.turn(c)
	}
	got := k.victims(dirty(k.tip[2].ID, k.tip[0].ID, k.tip[1].ID))
	for i, want := range []ID{k.tip[0].ID, k.tip[1].ID, k.tip[2].ID} {
		if got[i].Gen != want || got[i].Action != WriteBack {
			t.Fatalf("decision %d is %+v, want a write of %d", i, got[i], want)
		}
	}
}

// TestLoop: in a loop, what was used last is needed last, and goes first.
func TestLoop(t *testing.T) {
	a := newAdaptive()
	k := newTalk(a)
	for round := range 5 {
		for c := range 8 {
			k.turn(c)
		}
		_ = round
	}
	got := k.victims(dirty(k.tip[0].ID, k.tip[3].ID, k.tip[6].ID))
	if order := []ID{got[0].Gen, got[1].Gen, got[2].Gen}; !slices.Equal(order, []ID{k.tip[6].ID, k.tip[3].ID, k.tip[0].ID}) {
		e, _ := a.Explain(k.tip[6].ID)
		t.Errorf("the order is %v, want the tips of 6, 3, 0: %+v\n%v", order, k.tip, e)
	}
}

// TestUnlikely: the kind that is never continued is dropped unwritten, before
// anything is written; a single regret ends it.
func TestUnlikely(t *testing.T) {
	k := newTalk(newAdaptive())
	for range 4 {
		for c := range 8 {
			k.turn(c)
		}
	}
	prompt, response := k.last[3], k.tip[3].ID
	got := k.victims(dirty(prompt, response))
	if got[0] != (Decision{prompt, Own, Drop, ReasonUnlikely}) || got[1].Gen != response || got[1].Action != WriteBack {
		t.Fatalf("got %+v, want prompt %d dropped, then response %d written", got, prompt, response)
	}
	k.p.Retired(prompt)
	k.p.Missed(k.now, prompt)
	if got := k.victims(dirty(k.last[4])); got[0].Action != WriteBack {
		t.Errorf("after a regret: %+v", got)
	}
}

// TestLastOfItsKind: what looks hopeless is kept if its conversation has
// nothing likelier.
func TestLastOfItsKind(t *testing.T) {
	k := newTalk(newAdaptive())
	for range 4 {
		for c := range 8 {
			k.turn(c)
		}
	}
	prompt := k.last[3]
	a := k.p.(*Adaptive)
	for n := a.nodes[prompt].adaptive.line.newest; n != nil; {
		older := n.adaptive.older
		if n.ID != prompt {
			k.p.Retired(n.ID)
		}
		n = older
	}
	if got := k.victims(dirty(prompt)); got[0].Action != WriteBack {
		t.Errorf("the only one left of its conversation: %+v", got)
	}
}

// TestSuperseded: superseded generations go first and are never written; a
// fork point only once its grace is over.
func TestSuperseded(t *testing.T) {
	for name, p := range map[string]Policy{"recency": NewRecency(grace), "adaptive": newAdaptive()} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(p)
			k.turn(0)
			prompt, fork := k.last[0], k.tip[0].ID
			k.turn(0)
			k.turn(1)
			k.p.Published(k.now, Generation{ID: 100, Identity: 1, Request: 99, Kind: Prompt, Tokens: 50, Parent: k.tip[0].ID}, []ID{fork})
			k.turn(2)
			res := dirty(prompt, fork, k.tip[1].ID)
			got := k.victims(res)
			if got[0] != (Decision{prompt, Own, Drop, ReasonSuperseded}) {
				t.Errorf("first goes %+v", got[0])
			}
			i := slices.IndexFunc(got, func(d Decision) bool { return d.Gen == fork })
			if got[i].Action != Drop || got[i].Reason != ReasonForkPoint {
				t.Errorf("the fork point: %+v", got[i])
			}
			k.now += grace
			if got := k.victims(res); got[1].Gen != fork || got[1].Reason != ReasonSuperseded {
				t.Errorf("after the grace: %+v", got)
			}
			k.p.Hit(k.now, fork)
			k.turn(3)
			for _, d := range k.victims(res) {
				if d.Gen == fork && d.Action != WriteBack {
					t.Errorf("after a hit: %+v", d)
				}
			}
			if first, _ := firstOf(k.p.Coldest(k.now)); first != prompt {
				t.Errorf("coldest is %d, want the superseded %d", first, prompt)
			}
		})
	}
}

func firstOf(seq func(func(ID) bool)) (first ID, ok bool) {
	for id := range seq {
		return id, true
	}
	return 0, false
}

// TestTailBeforeHistory: of a generation at equal distance, the own pages go
// before the shared ones, and clean pages before dirty ones.
func TestTailBeforeHistory(t *testing.T) {
	for name, p := range map[string]Policy{"recency": NewRecency(grace), "adaptive": newAdaptive()} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(p)
			k.turn(0)
			k.turn(1)
			both := Bytes{Dirty: 1, Clean: 1}
			got := k.victims([]Resident{{Gen: k.tip[0].ID, Own: both, Shared: both}})
			own := slices.IndexFunc(got, func(d Decision) bool { return d.Part == Own && d.Action == WriteBack })
			shared := slices.IndexFunc(got, func(d Decision) bool { return d.Part == Shared && d.Action == WriteBack })
			if len(got) != 4 || own > shared || got[0].Action != Evict {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestAnything: no sequence of events breaks a policy, not even events of
// generations it doesn't know, or makes it write what is superseded; what it
// holds is bounded by the generations, and goes with them.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, p := range []Policy{NewRecency(grace), newAdaptive()} {
			superseded := map[ID]bool{}
			live, used := map[ID]bool{}, map[ID]bool{}
			var res []Resident
			id := func() ID { return ID(rapid.IntRange(0, 25).Draw(t, "id")) }
			for i := range rapid.IntRange(1, 80).Draw(t, "events") {
				now := time.Duration(i) * time.Minute
				switch g := id(); rapid.IntRange(0, 5).Draw(t, "event") {
				case 0, 1:
					if g == 0 || used[g] {
						continue
					}
					used[g] = true
					parent, old := id(), id()
					if parent >= g || !live[parent] {
						parent = 0
					}
					live[g] = true
					p.Published(now, Generation{ID: g, Identity: uint64(g % 2), Request: uint64(id() % 4), Kind: Kind(g % 3), Tokens: int(g), Parent: parent}, []ID{old})
					superseded[old] = live[old]
					res = append(res, Resident{g, Bytes{1, 1}, Bytes{1, 1}})
				case 2:
					p.Hit(now, g)
					superseded[g] = false
				case 3:
					p.Missed(now, g)
				case 4:
					p.Retired(g)
					delete(live, g)
					delete(superseded, g)
				case 5:
					for d := range p.Victims(now, res) {
						if d.Part == Own && d.Action == WriteBack && superseded[d.Gen] {
							t.Fatalf("%+v writes what is superseded", d)
						}
						if d.Action == Drop && rapid.Bool().Draw(t, "apply") {
							p.Retired(d.Gen)
							delete(live, d.Gen)
							delete(superseded, d.Gen)
						}
					}
				}
			}
			for g := range ID(26) {
				p.Retired(g)
			}
			if s := p.Stats(); s.Generations+s.Forks+s.Conversations+s.Identities != 0 {
				t.Fatalf("left when all is retired: %+v", s)
			}
		}
	})
}

// TestKept: a superseded generation that a prompt continues all the same, from
// the engine's own memory, is current again and a fork point.
func TestKept(t *testing.T) {
	for name, p := range map[string]Policy{"recency": NewRecency(grace), "adaptive": newAdaptive()} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(p)
			k.turn(0)
			fork := k.tip[0]
			sub := Generation{ID: 100, Identity: 1, Request: 99, Kind: Prompt, Tokens: fork.Tokens + 5, Parent: fork.ID, Kept: fork.ID}
			p.Published(k.now, sub, nil)
			p.Published(k.now, Generation{ID: 101, Identity: 1, Request: 98, Kind: Prompt, Tokens: fork.Tokens + 10, Parent: sub.ID, Kept: sub.ID}, []ID{fork.ID})
			if got := k.victims(dirty(fork.ID)); got[0].Action != Drop {
				t.Fatalf("a superseded fork point: %+v", got)
			}
			p.Published(k.now, Generation{ID: 102, Identity: 1, Request: 97, Kind: Prompt, Tokens: fork.Tokens + 5, Parent: fork.ID, Kept: fork.ID}, nil)
			if got := k.victims(dirty(fork.ID)); got[0].Action != WriteBack {
				t.Errorf("when it is continued: %+v", got)
			}
		})
	}
}

// TestToldLate: what has become of a generation is told with it when a driver
// begins anew; its grace has begun when it was superseded.
func TestToldLate(t *testing.T) {
	for name, p := range map[string]Policy{"recency": NewRecency(grace), "adaptive": newAdaptive()} {
		t.Run(name, func(t *testing.T) {
			told := func(id ID, fork, superseded bool, at time.Duration) {
				p.Published(0, Generation{ID: id, Identity: 1, Request: uint64(id), Kind: Response, Tokens: 5, Fork: fork, Superseded: superseded, SupersededAt: at}, nil)
			}
			told(1, false, false, 0)
			told(2, true, true, -grace/2)
			told(3, true, true, -2*grace)
			told(4, false, true, 0)
			first := slices.Collect(p.Coldest(0))[:2]
			if slices.Sort(first); !slices.Equal(first, []ID{3, 4}) {
				t.Errorf("first go %v, want what is superseded and not in grace", first)
			}
			k := &talk{p: p}
			for _, d := range k.victims(dirty(1, 2, 3, 4)) {
				if want := d.Gen > 1; want != (d.Action == Drop) {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

// TestMemoryIsCounted: what a policy says to hold grows and shrinks with what it
// knows, and its count of retired forks is right.
func TestMemoryIsCounted(t *testing.T) {
	k := newTalk(newAdaptive())
	for range 5 {
		for c := range 20 {
			k.turn(c)
		}
	}
	full := k.p.Stats()
	if full.Generations != 200 || full.Conversations != 20 || full.Bytes < 200*100 {
		t.Fatalf("it holds %+v", full)
	}
	for id := range k.next {
		k.p.Retired(id + 1)
	}
	if s := k.p.Stats(); s.Generations != 0 || s.Forks != 0 || s.Conversations != 0 || s.Bytes >= full.Bytes {
		t.Errorf("when all is retired it holds %+v", s)
	}
}
