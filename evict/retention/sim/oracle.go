package sim

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"ckptfs/evict/retention"
)

// Oracle knows the future. With Farthest it is the offline bound of
// WORKLOAD.md: it drops what is never read again, else writes what is read
// farthest from now, whatever kind of page. With Cheapest it weighs costs over
// time as [retention.Adaptive] does, but with the true times.
type Oracle struct {
	*retention.Recency
	rule  Rule
	costs retention.Costs
	uses  map[retention.ID][]int // numbers of the restores, ascending
	past  int                    // restores so far
	alive []retention.Generation // by ID
	last  retention.ID           // restored, or published as prompt, last: at work
}

// Rule is an oracle's rule.
type Rule int

// The rules; see [Oracle].
const (
	Farthest Rule = iota
	Cheapest
)

// recorder notes which restore uses which generation.
type recorder struct {
	*retention.Recency
	uses map[retention.ID][]int
	past int
}

func (r *recorder) Hit(_ time.Duration, id retention.ID) {
	r.uses[id] = append(r.uses[id], r.past)
	r.past++
}

// NewOracle plays the script once without pressure, to know its restores.
func NewOracle(s Script, rule Rule) *Oracle {
	rec := &recorder{Recency: retention.NewRecency(math.MaxInt64), uses: make(map[retention.ID][]int)}
	Run(s, 1<<20, rec)
	return &Oracle{
		Recency: retention.NewRecency(math.MaxInt64),
		rule:    rule, costs: retention.DefaultCosts(),
		uses: rec.uses,
	}
}

// Published implements [Policy].
func (o *Oracle) Published(now time.Duration, g retention.Generation, superseded []retention.ID) {
	o.alive = append(o.alive, g)
	o.last = 0
	if g.Kind == retention.Prompt {
		o.last = g.ID
	}
	o.Recency.Published(now, g, superseded)
}

// Hit implements [Policy].
func (o *Oracle) Hit(now time.Duration, id retention.ID) {
	o.past++
	o.last = id
	o.Recency.Hit(now, id)
}

// Retired implements [Policy].
func (o *Oracle) Retired(id retention.ID) []retention.Move {
	o.alive = slices.DeleteFunc(o.alive, func(g retention.Generation) bool { return g.ID == id })
	return o.Recency.Retired(id)
}

const never = math.MaxInt

// next is the number of restores until the generation is restored.
func (o *Oracle) next(id retention.ID) int {
	uses := o.uses[id]
	at, _ := slices.BinarySearch(uses, o.past)
	switch {
	case id == o.last:
		return 1
	case at == len(uses):
		return never
	}
	return uses[at] - o.past + 1
}

// remaining is the number of restores to come.
func (o *Oracle) remaining(id retention.ID) int {
	uses := o.uses[id]
	at, _ := slices.BinarySearch(uses, o.past)
	return len(uses) - at
}

// choice is a decision and what it gives up.
type choice struct {
	retention.Decision
	worth float64
}

// Victims implements [Policy]: what is never read again, then by the rule.
func (o *Oracle) Victims(_ time.Duration, resident []retention.Resident) iter.Seq[retention.Decision] {
	var choices []choice
	for _, g := range o.alive {
		if o.remaining(g.ID) == 0 && g.ID != o.last {
			choices = append(choices, choice{retention.Decision{Gen: g.ID, Action: retention.Drop}, math.Inf(-1)})
		}
	}
	for _, r := range resident {
		choices = o.pages(choices, r.Gen, retention.Own, r.Own, o.next(r.Gen), 1)
		next, uses := never, 0
		for _, g := range o.alive {
			if (o.remaining(g.ID) > 0 || g.ID == o.last) && o.covers(r.Gen, g.ID) {
				next, uses = min(next, o.next(g.ID)), uses+o.remaining(g.ID)
			}
		}
		choices = o.pages(choices, r.Gen, retention.Shared, r.Shared, next, uses)
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return cmp.Compare(a.worth, b.worth) })
	return func(yield func(retention.Decision) bool) {
		for _, c := range choices {
			if !yield(c.Decision) {
				return
			}
		}
	}
}

func (o *Oracle) covers(home, id retention.ID) bool {
	homes := map[retention.ID]bool{home: true}
	o.Uncovered(homes, id)
	return len(homes) == 0
}

// pages enters the decisions about pages that are read next after so many
// restores, and so many times in all.
func (o *Oracle) pages(to []choice, id retention.ID, part retention.Part, b retention.Bytes, next, uses int) []choice {
	if next == never {
		return to
	}
	far := float64(next)
	clean, dirty := -far-0.5, -far
	if o.rule == Cheapest {
		clean, dirty = o.costs.Read/far, (o.costs.Read+o.costs.Write/float64(max(uses, 1)))/far
	}
	if b.Clean > 0 {
		to = append(to, choice{retention.Decision{Gen: id, Part: part, Action: retention.Evict}, clean})
	}
	if b.Dirty > 0 {
		to = append(to, choice{retention.Decision{Gen: id, Part: part, Action: retention.WriteBack}, dirty})
	}
	return to
}
