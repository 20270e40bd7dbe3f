package retention

import "time"

// Costs weighs, per byte, what an eviction may cost. Only their ratios matter.
type Costs struct {
	Read  float64 // a page has to be read back
	Write float64 // a page has to be written to disk
	Loss  float64 // a page has to be computed again
}

// DefaultCosts value a write like eight reads (flash wears, and a write delays
// the reads beside it), and a loss like forty writes.
func DefaultCosts() Costs { return Costs{Read: 1, Write: 8, Loss: 320} }

// Adaptive keeps in RAM what saves most per time it occupies RAM: what an
// eviction would cost (a read, a write, a loss), by the chance that the
// generation is the one that will be continued, over the time till then. Both
// are learned per identity; at first they are such that it does what recency
// does.
type Adaptive struct {
	tree
	grace time.Duration
	costs Costs

	minds   map[uint64]*mind
	now     int64    // visits so far
	current *lineage // whose visit it is
	ghosts  ghosts
}

// NewAdaptive returns a policy that knows nothing yet.
func NewAdaptive(grace time.Duration, costs Costs) *Adaptive {
	return &Adaptive{
		tree:  newTree(),
		grace: grace,
		costs: costs,
		minds: make(map[uint64]*mind),
	}
}

// Published implements [Policy].
func (a *Adaptive) Published(now time.Duration, g Generation, superseded []ID) {
	n := a.add(g)
	if n == nil {
		return
	}
	p := n.parent
	switch {
	case p == nil:
		a.found(n)
	case p.Request == g.Request || g.Kind != Prompt:
		p.adaptive.outlived = p.adaptive.outlived || p.Request == g.Request
		n.adaptive.quick = p.adaptive.quick
		a.join(n, p)
	default:
		a.continued(n, p)
	}
	a.supersede(now, superseded)
}

// continued enters a prompt that goes on from another request's generation.
func (a *Adaptive) continued(n, p *node) {
	l := &p.adaptive
	if l.lookedUp != a.now {
		a.use(p) // without a lookup: the engine had it still
	}
	p.Fork = true
	if l.quickUse {
		l.usage = max(l.usage, borrowed)
	} else {
		l.laterUses = min(l.laterUses+1, hubUses)
		l.usage = spent
		if l.laterUses > 1 {
			l.usage = hub
		}
	}
	n.adaptive.quick = l.quickUse
	if p.Kind == Instruction || l.laterUses >= hubUses {
		a.found(n)
		return
	}
	a.join(n, p)
}

// Hit implements [Policy].
func (a *Adaptive) Hit(_ time.Duration, id ID) {
	n := a.get(id)
	if n == nil {
		return
	}
	a.use(n)
	n.Superseded = false
	n.adaptive.lookedUp = a.now
}

// Missed implements [Policy].
func (a *Adaptive) Missed(_ time.Duration, id ID) {
	if g, ok := a.ghosts.take(id); ok {
		if m := a.minds[g.identity]; m != nil {
			m.hit(g.trait, missWeight)
		}
	}
}

// Retired implements [Policy].
func (a *Adaptive) Retired(id ID) []Move {
	n := a.get(id)
	if n == nil {
		return nil
	}
	a.ghosts.add(ghost{id, n.Identity, n.trait()})
	m := n.adaptive.line.mind
	n.delist()
	if len(m.lines) == 0 {
		delete(a.minds, n.Identity)
	}
	return a.remove(n)
}

// use records that a request continues n: it may begin a visit.
func (a *Adaptive) use(n *node) {
	l := n.adaptive.line
	n.adaptive.quickUse = a.current == l && n.adaptive.visit == l.visits
	if a.current != l {
		a.now++
		a.current = l
		l.judge(n)
		l.arrive(a.now)
	}
	a.touch(n, l)
}

// found begins a lineage.
func (a *Adaptive) found(n *node) {
	m := a.minds[n.Identity]
	if m == nil {
		m = new(mind)
		a.minds[n.Identity] = m
	}
	a.now++
	a.current = &lineage{mind: m, at: a.now}
	a.touch(n, a.current)
}

// join enters n into its parent's lineage.
func (a *Adaptive) join(n, p *node) { a.touch(n, p.adaptive.line) }

func (a *Adaptive) touch(n *node, l *lineage) {
	l.enlist(n)
	n.touched = a.now
}
