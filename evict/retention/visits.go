package retention

import "math"

// life is what the adaptive policy remembers of a generation.
type life struct {
	line      *lineage
	newer     *node // neighbours in the lineage's list
	older     *node
	visit     int   // the lineage's visit that touched it last
	outlived  bool  // a longer generation of its own request exists
	quick     bool  // its request began within the visit that touched its parent
	quickUse  bool  // its own last use was within the visit that touched it before
	usage     usage // how other requests have continued it
	laterUses uint8 // by later visits, up to hubUses
	lookedUp  int64 // the visit, of all, that last looked it up
}

const (
	hubUses  = 4  // so many later uses make a root that new conversations share
	maxTrial = 32 // generations looked at per visit
)

// lineage is a conversation with its side requests and sub-agents, as far as
// it can be told: what descends from one first prompt. A visit is a run of
// requests to one lineage, undisturbed by other lineages.
type lineage struct {
	mind   *mind
	newest *node
	size   int
	at     int64 // when it was visited last, in visits to any lineage
	visits int
	last   float64 // interval between its last two visits; 0 = unknown
	smooth float64 // geometric mean of its intervals, the recent ones foremost

	density float64 // by plan
	stakes  float64 // by plan: the sum of its generations' odds
	place   int     // in the mind's list
}

// mind is what has been learned about an identity.
type mind struct {
	returns
	odds
	lines []*lineage // those with generations
	// Errors of the two predictions of an interval, decayed: of a lineage's
	// last interval, and of the mean of them.
	lastError, smoothError float64
}

// predicted is the interval after which the lineage is expected, in visits.
func (l *lineage) predicted() float64 {
	switch {
	case l.last == 0 && l.mind.typical == 0:
		return 1
	case l.last == 0:
		return l.mind.typical
	case l.mind.smoothError < l.mind.lastError:
		return l.smooth
	}
	return l.last
}

// arrive records a visit that begins now.
func (l *lineage) arrive(now int64) {
	waited := float64(now - l.at)
	m := l.mind
	if m.typical > 0 {
		m.observe(waited, l.predicted())
	} else {
		m.observe(waited, 0)
	}
	if l.last > 0 {
		const keep = 1 - 1.0/32
		m.lastError = m.lastError*keep + math.Abs(math.Log2(waited/l.last))
		m.smoothError = m.smoothError*keep + math.Abs(math.Log2(waited/l.smooth))
		l.smooth = math.Sqrt(l.smooth * waited)
	} else {
		l.smooth = waited
	}
	l.last, l.at = waited, now
	l.visits++
}

// judge lets a visit that continues chosen teach which trait is continued.
func (l *lineage) judge(chosen *node) {
	tried := 0
	for n := l.newest; n != nil && tried < maxTrial; n = n.adaptive.older {
		tried++
		if n != chosen {
			l.mind.vain(n.trait())
		}
	}
	if chosen != nil {
		l.mind.hit(chosen.trait(), 1)
	}
}

// trait sums up how the generation looks to the next visit.
func (n *node) trait() trait {
	a := &n.adaptive
	passed := 0
	if a.line != nil {
		switch since := a.line.visits - a.visit; {
		case since > 3:
			passed = 3
		case since > 1:
			passed = 2
		case since > 0:
			passed = 1
		}
	}
	t := int(n.Kind) % kinds
	t = t*usages + int(a.usage)
	t = t*passings + passed
	t *= 4
	if a.outlived {
		t += 2
	}
	if a.quick {
		t++
	}
	return trait(t)
}

// enlist makes n the newest of its lineage; a member moves to that place.
func (l *lineage) enlist(n *node) {
	if n.adaptive.line != nil {
		n.delist()
	}
	a := &n.adaptive
	a.line, a.visit, a.older = l, l.visits, l.newest
	if l.newest != nil {
		l.newest.adaptive.newer = n
	}
	l.newest = n
	l.size++
	if l.size == 1 {
		l.place = len(l.mind.lines)
		l.mind.lines = append(l.mind.lines, l)
	}
}

func (n *node) delist() {
	a := &n.adaptive
	l := a.line
	if a.newer != nil {
		a.newer.adaptive.older = a.older
	} else {
		l.newest = a.older
	}
	if a.older != nil {
		a.older.adaptive.newer = a.newer
	}
	l.size--
	if m := l.mind; l.size == 0 {
		last := m.lines[len(m.lines)-1]
		m.lines[l.place], last.place = last, l.place
		m.lines = m.lines[:len(m.lines)-1]
	}
	a.line, a.newer, a.older = nil, nil, nil
}
