package retention

import (
	"iter"
	"time"
	"unsafe"
)

// coldest ranks generations for retirement as a whole: superseded ones first,
// then the least recently used. No prediction has a say: what is lost here has
// to be computed again, and the disk is large enough for recency to be right.
func (t *tree) coldest(now, grace time.Duration) iter.Seq[ID] {
	q := make(queue, 0, len(t.nodes))
	for _, n := range t.nodes {
		if n.gone {
			continue
		}
		v := victim{Decision: Decision{Gen: n.ID}, class: ranked, order: n.touched}
		if n.Superseded && !n.inGrace(now, grace) {
			v.class = superseded
		}
		q = append(q, v)
	}
	return func(yield func(ID) bool) {
		for d := range q.drain() {
			if !yield(d.Gen) {
				return
			}
		}
	}
}

// Coldest implements [Policy].
func (r *Recency) Coldest(now time.Duration) iter.Seq[ID] { return r.coldest(now, r.grace) }

// Coldest implements [Policy].
func (a *Adaptive) Coldest(now time.Duration) iter.Seq[ID] { return a.coldest(now, a.grace) }

// Rough costs of map entries beyond what they hold.
const mapEntryBytes = 24

func (t *tree) stats() Stats {
	return Stats{
		Generations: len(t.nodes) - t.forks, Forks: t.forks,
		Bytes: int64(len(t.nodes)) * int64(unsafe.Sizeof(node{})+mapEntryBytes),
	}
}

// Stats implements [Policy].
func (r *Recency) Stats() Stats { return r.stats() }

// Stats implements [Policy].
func (a *Adaptive) Stats() Stats {
	s := a.stats()
	s.Identities = len(a.minds)
	for _, m := range a.minds {
		s.Conversations += len(m.lines)
	}
	s.Bytes += int64(s.Identities)*int64(unsafe.Sizeof(mind{})+mapEntryBytes) +
		int64(s.Conversations)*int64(unsafe.Sizeof(lineage{})) +
		int64(len(a.ghosts.ring))*int64(unsafe.Sizeof(ghost{})+mapEntryBytes)
	return s
}
