package retention

// trait is how a generation looks when its conversation is visited again: what
// decides whether it will be the one that is continued.
type trait uint16

// Dimensions of a trait.
const (
	kinds      = 3
	usages     = 4                             // see usage
	passings   = 4                             // visits of the conversation since it was last touched: 0, 1, 2–3, more
	coarse     = kinds * usages * passings * 2 // see trait.coarse
	traitCount = coarse*2 + coarse
)

// coarse is the trait without regard to whether the request was a quick one.
func (t trait) coarse() trait { return 2*coarse + t/2 }

// usage tells how a generation has been continued by other requests.
type usage uint8

const (
	unused   usage = iota
	borrowed       // only at once, within the visit that made it: side requests, sub-agents
	spent          // by a later visit
	hub            // by several later visits
)

// odds counts, for one identity and each trait, how often such a generation
// was the one that a visit continued, and how often it was there in vain.
type odds [traitCount]record

type record struct{ hits, vain uint8 }

func (r record) trials() float64 { return float64(r.hits) + float64(r.vain) }

const (
	oddsMemory   = 128 // trials kept per trait; beyond, all are halved
	missWeight   = 16  // a drop that was regretted counts like so many trials
	unlikely     = 1.0 / 40
	neutralOdds  = 0.5
	neutralTrust = 2.0
)

func (o *odds) hit(t trait, weight uint8) {
	for _, t := range [...]trait{t, t.coarse()} {
		o[t].hits += weight
		o.forget(t)
	}
}

func (o *odds) vain(t trait) {
	for _, t := range [...]trait{t, t.coarse()} {
		o[t].vain++
		o.forget(t)
	}
}

func (o *odds) forget(t trait) {
	if c := &o[t]; c.trials() > oddsMemory {
		c.hits, c.vain = c.hits/2, c.vain/2
	}
}

// of estimates the chance to be the one that is continued, from a prior.
func (o *odds) of(t trait, prior float64) float64 {
	c := &o[t]
	return (float64(c.hits) + neutralTrust*prior) / (c.trials() + neutralTrust)
}

// hopeless tells whether a trait has (almost) never been continued: by
// Krichevsky and Trofimov's estimate, no hit in twenty trials at the least.
func (o *odds) hopeless(t trait) bool {
	c := &o[t]
	return (float64(c.hits)+0.5)/(c.trials()+1) < unlikely
}

// stake is the chance of a trait in the bookmakers' form, p to 1-p: if exactly
// one of several is to win, each wins in proportion to it.
func (o *odds) stake(t trait) float64 {
	p := o.of(t, neutralOdds)
	return p / (1 - p)
}
