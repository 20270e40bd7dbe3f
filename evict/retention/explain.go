package retention

import "fmt"

// Explanation is what the adaptive policy thinks of a generation, for `ckptfs
// why` and for tests.
type Explanation struct {
	Superseded bool
	ForkPoint  bool
	Chance     float64 // that the conversation's next visit continues it
	Trials     int     // what that rests on
	Unlikely   bool    // would be dropped unwritten
	Waited     float64 // since the conversation's last visit, in visits
	Predicted  float64 // interval between its visits, in visits
	Density    float64 // returns per visit of RAM that it is expected to bring
}

// Explain tells what the policy thinks of a generation as things are now.
func (a *Adaptive) Explain(id ID) (Explanation, bool) {
	n := a.get(id)
	if n == nil {
		return Explanation{}, false
	}
	a.weigh()
	l, t := n.adaptive.line, n.trait()
	return Explanation{
		Superseded: n.Superseded,
		ForkPoint:  n.Fork,
		Chance:     a.chance(n),
		Trials:     int(l.mind.odds[t].trials()),
		Unlikely:   n.hopeless(),
		Waited:     float64(a.now - l.at),
		Predicted:  l.predicted(),
		Density:    l.density,
	}, true
}

func (e Explanation) String() string {
	s := fmt.Sprintf("continued by the next visit with %.0f %% chance (%d trials); last visit %.0f visits ago, next expected after %.0f",
		100*e.Chance, e.Trials, e.Waited, e.Predicted)
	switch {
	case e.Superseded && e.ForkPoint:
		s += "; a superseded fork point"
	case e.Superseded:
		s += "; superseded"
	case e.Unlikely:
		s += "; its like is not continued"
	}
	return s
}
