package retention

import (
	"iter"
	"time"
)

// Recency is the plain policy, and the yardstick: superseded generations go
// first; then the least recently published or restored. A superseded fork
// point keeps its place for the grace period.
type Recency struct {
	tree
	grace time.Duration
	count int64
}

// NewRecency returns a policy that knows nothing yet.
func NewRecency(grace time.Duration) *Recency {
	return &Recency{tree: newTree(), grace: grace}
}

// Published implements [Policy].
func (r *Recency) Published(now time.Duration, g Generation, superseded []ID) {
	n := r.add(g)
	if n == nil {
		return
	}
	r.touch(n)
	if n.parent != nil && n.parent.Request != g.Request && g.Kind == Prompt {
		n.parent.Fork = true
	}
	r.supersede(now, superseded)
}

// Hit implements [Policy].
func (r *Recency) Hit(_ time.Duration, id ID) {
	if n := r.get(id); n != nil {
		n.Superseded = false
		r.touch(n)
	}
}

// Missed implements [Policy]; recency learns nothing.
func (r *Recency) Missed(time.Duration, ID) {}

// Retired implements [Policy].
func (r *Recency) Retired(id ID) []Move {
	if n := r.get(id); n != nil {
		return r.remove(n)
	}
	return nil
}

// Victims implements [Policy].
func (r *Recency) Victims(now time.Duration, resident []Resident) iter.Seq[Decision] {
	r.plan++
	for _, n := range r.nodes {
		if !n.gone {
			r.raise(n, float64(n.touched), 0, !n.Superseded)
		}
	}
	q := make(queue, 0, len(resident))
	for _, res := range resident {
		n := r.nodes[res.Gen]
		if n == nil {
			continue
		}
		at := func(p Part, a Action, touched int64) victim {
			return victim{Decision: Decision{n.ID, p, a, ReasonCold}, class: ranked, worth: float64(touched)}
		}
		if !n.gone && n.expendable(res) {
			v := at(Own, Drop, n.touched)
			v.Reason = ReasonForkPoint
			if !n.inGrace(now, r.grace) {
				v.class, v.Reason = superseded, ReasonSuperseded
			}
			q = append(q, v)
		}
		if res.Own.Clean > 0 {
			q = append(q, at(Own, Evict, n.touched))
		}
		if res.Own.Dirty > 0 && !n.Superseded {
			q = append(q, at(Own, WriteBack, n.touched))
		}
		if res.Shared.Clean > 0 {
			q = append(q, at(Shared, Evict, int64(n.rank.need)))
		}
		if res.Shared.Dirty > 0 && n.rank.current {
			q = append(q, at(Shared, WriteBack, int64(n.rank.need)))
		}
	}
	return q.drain()
}

func (r *Recency) touch(n *node) {
	r.count++
	n.touched = r.count
}

// supersede marks generations; one that already was keeps its first time.
func (t *tree) supersede(now time.Duration, ids []ID) {
	for _, id := range ids {
		if n := t.get(id); n != nil && !n.Superseded {
			n.Superseded, n.SupersededAt = true, now
		}
	}
}

// inGrace tells whether a superseded generation still keeps a place.
func (n *node) inGrace(now, grace time.Duration) bool {
	return n.Fork && now-n.SupersededAt < grace
}

// expendable tells whether only a drop frees pages of a generation: it is
// superseded, so its pages may not be written, and some have no other copy.
func (n *node) expendable(res Resident) bool {
	return n.Superseded && (res.Own.Dirty > 0 || res.Shared.Dirty > 0 && !n.rank.current)
}
