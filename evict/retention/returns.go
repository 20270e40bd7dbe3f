package retention

import "math"

// Times are counted in visits, not in seconds, so that a pause of the whole
// machine teaches nothing, and the same requests give the same decisions.
const (
	perOctave = 4  // buckets per doubling of the ratio
	span      = 20 // buckets on each side of the ratio 1
	buckets   = 2*span + 1

	memory = 64.0 // visits after which a return weighs 1/e

	// What a policy believes before it has seen anything: each quarter octave
	// of waiting, this share returns. The hazard of a return then falls with
	// the time waited, whatever the interval: plain recency.
	priorHazard = 0.1
	priorWeight = 1.0
	trustAfter  = 8.0 // returns after which those who wait count half
)

// returns learns, for one identity, when conversations come back, as the ratio
// of the time waited to the time predicted. A loop shows as one peak at 1,
// chance as an even hazard, bursts as a falling one: recency, frequency and
// loop prediction are what it makes of these. The estimate is Kaplan and
// Meier's (JASA 1958); ranking by the best attainable hits per time in RAM is
// LHD's (Beckmann, Chen, Cidon, NSDI 2018), before them Gittins'.
type returns struct {
	events  [buckets]float64 // decayed counts of returns
	typical float64          // an interval, for who has none of his own; 0 = unknown
}

// forecast is what one plan makes of returns and of who waits still.
type forecast struct {
	passed [buckets]float64 // those that waited past the bucket, decayed
	hazard [buckets]float64 // chance to return in the bucket, having waited till it
}

func bucket(ratio float64) int {
	b := int(math.Round(math.Log2(ratio)*perOctave)) + span
	return min(max(b, 0), buckets-1)
}

var centres = func() (c [buckets]float64) {
	for b := range c {
		c[b] = math.Exp2(float64(b-span) / perOctave)
	}
	return c
}()

// observe records a return after waited visits where predicted were expected.
func (r *returns) observe(waited, predicted float64) {
	if predicted > 0 {
		for b := range r.events {
			r.events[b] *= 1 - 1/memory
		}
		r.events[bucket(waited/predicted)]++
	}
	if r.typical == 0 {
		r.typical = waited
	}
	r.typical = math.Sqrt(math.Sqrt(r.typical * r.typical * r.typical * waited)) // weight ¼
}

// await enters a conversation that has waited so long: it has passed the
// buckets below its ratio without a return, which counts like a return as long
// as it is as recent.
func (f *forecast) await(waited, predicted float64) {
	for b := bucket(waited/predicted) - 1; b >= 0; b-- {
		ago := waited - centres[b]*predicted
		if ago > 4*memory {
			return
		}
		f.passed[b] += math.Exp(-max(ago, 0) / memory)
	}
}

// settle computes the hazards, when all who wait are entered.
func (f *forecast) settle(r *returns) {
	seen := 0.0
	for _, e := range r.events {
		seen += e
	}
	// That nobody has returned yet is no evidence before somebody has.
	trust := seen / (seen + trustAfter)
	atRisk := 0.0
	for b := buckets - 1; b >= 0; b-- {
		atRisk += r.events[b]
		f.hazard[b] = (r.events[b] + priorWeight*priorHazard) / (atRisk + trust*f.passed[b] + priorWeight)
	}
}

// density is the greatest ratio, over all times one might keep a conversation
// that has waited so long, of the chance that it returns by then to the time
// that it is expected to be in RAM till then. Unit: returns per visit.
func (f *forecast) density(waited, predicted float64) float64 {
	best, chance, survive, spent := 0.0, 0.0, 1.0, 0.0
	for b := bucket(waited / predicted); b < buckets; b++ {
		// A bucket that is partly over has what remains of it ahead.
		upper := centres[b] * math.Exp2(0.5/perOctave) * predicted
		ahead := max(centres[b]*predicted-waited, (upper-waited)/2, 0.5)
		comes := survive * f.hazard[b]
		chance += comes
		spent += comes * ahead
		survive -= comes
		best = max(best, chance/(spent+survive*ahead))
	}
	return best
}
