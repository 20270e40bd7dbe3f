package retention

import (
	"iter"
	"time"
)

const (
	// atWork is the density of the lineage that is being visited: its next
	// request is imminent. All others are below.
	atWork = 4
)

// Victims implements [Policy].
func (a *Adaptive) Victims(now time.Duration, resident []Resident) iter.Seq[Decision] {
	a.weigh()
	q := make(queue, 0, 4*len(resident))
	for _, res := range resident {
		if n := a.nodes[res.Gen]; n != nil {
			if !n.gone {
				q = a.own(q, now, n, res)
			}
			q = a.shared(q, n, res)
		}
	}
	return q.drain()
}

// weigh computes how near each lineage's next visit is, and from it how much
// the pages of each home are needed.
func (a *Adaptive) weigh() {
	a.plan++
	for _, m := range a.minds {
		m.weigh(a.now)
	}
	if a.current != nil {
		a.current.density = atWork
	}
	for _, n := range a.nodes {
		if !n.gone {
			density, keep := n.adaptive.line.density, 0.0
			if n.writable() {
				keep = density
			}
			a.raise(n, a.chance(n)*density, keep, n.writable())
		}
	}
}

// weigh computes how near the next visit of each lineage is.
func (m *mind) weigh(now int64) {
	var f forecast
	for _, l := range m.lines {
		f.await(l.waited(now), l.predicted())
	}
	f.settle(&m.returns)
	for _, l := range m.lines {
		l.density = f.density(l.waited(now), l.predicted())
		l.stakes = 0
		for n := l.newest; n != nil; n = n.adaptive.older {
			l.stakes += m.stake(n.trait())
		}
	}
}

// waited is the time since the last visit, at least half a visit.
func (l *lineage) waited(now int64) float64 { return max(float64(now-l.at), 0.5) }

// chance is the probability that the next visit continues n.
func (a *Adaptive) chance(n *node) float64 {
	prior := neutralOdds
	if n.Superseded {
		prior = 2 * a.costs.Write / a.costs.Loss // for it can't be put aside by a write
	}
	return n.adaptive.line.mind.of(n.trait(), prior)
}

// writable tells whether n is a reason to write a page.
func (n *node) writable() bool {
	return !n.Superseded && !n.hopeless()
}

// hopeless tells whether n can be dropped without regret: its like has never
// been continued, and among what is left of its conversation there is
// something likelier by far. One of them it will be, so what is alone in being
// hopeless is not. Of the conversation's last request, quick or not, that must
// hold without regard to quickness: it looks like a side request, and may be
// the conversation itself, in a hurry.
func (n *node) hopeless() bool {
	l, t := n.adaptive.line, n.trait()
	if !l.mind.hopeless(t) || l.mind.stake(t) >= unlikely*l.stakes {
		return false
	}
	return n.Request != l.newest.Request || l.mind.hopeless(t.coarse())
}

// own enters the decisions about a generation as such.
func (a *Adaptive) own(q queue, now time.Duration, n *node, res Resident) queue {
	density, chance := n.adaptive.line.density, a.chance(n)
	at := func(act Action, why Reason, worth float64) victim {
		return victim{Decision: Decision{n.ID, Own, act, why}, class: ranked, worth: worth * density, order: n.touched}
	}
	if res.Own.Clean > 0 {
		q = append(q, at(Evict, ReasonCold, chance*a.costs.Read))
	}
	switch {
	case n.expendable(res):
		v := at(Drop, ReasonForkPoint, chance*a.costs.Loss)
		if n.hopeless() {
			v.class = hopeless
		}
		if !n.inGrace(now, a.grace) {
			v.class, v.Reason = superseded, ReasonSuperseded
		}
		q = append(q, v)
	case n.Superseded:
	case !n.writable() && (res.Own.Dirty > 0 || res.Shared.Dirty > 0 && !n.rank.current):
		v := at(Drop, ReasonUnlikely, chance*a.costs.Loss)
		v.class = hopeless
		q = append(q, v)
	case res.Own.Dirty > 0:
		q = append(q, at(WriteBack, ReasonCold, a.costs.Write+chance*a.costs.Read))
	}
	return q
}

// shared enters the decisions about the shared pages of a home. They are worth
// at least what the own pages of the nearest generation are: the tail goes
// before the history.
func (a *Adaptive) shared(q queue, n *node, res Resident) queue {
	at := func(act Action, worth float64) victim {
		return victim{Decision: Decision{n.ID, Shared, act, ReasonCold}, class: ranked, worth: worth, order: n.touched}
	}
	if res.Shared.Clean > 0 {
		q = append(q, at(Evict, a.costs.Read*n.rank.need))
	}
	if res.Shared.Dirty > 0 && n.rank.current {
		q = append(q, at(WriteBack, a.costs.Read*n.rank.need+a.costs.Write*n.rank.keep))
	}
	return q
}
