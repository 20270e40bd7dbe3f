package retention

import (
	"math/rand/v2"
	"testing"
)

// full returns a policy with the most generations there can be, and all of
// their homes in RAM.
func full(generations int) (*talk, []Resident) {
	k := newTalk(newAdaptive())
	rng := rand.New(rand.NewPCG(1, 1))
	for int(k.next) < generations {
		k.turn(rng.IntN(generations / 16))
	}
	var res []Resident
	for id := range k.next {
		res = append(res, Resident{Gen: id + 1, Own: Bytes{1, 1}, Shared: Bytes{1, 1}})
	}
	return k, res
}

func BenchmarkVictims(b *testing.B) {
	k, res := full(65536)
	for b.Loop() {
		taken := 0
		for range k.p.Victims(k.now, res) {
			if taken++; taken == 65536/6 {
				break
			}
		}
	}
	b.ReportMetric(float64(k.p.Stats().Bytes)/65536, "B/generation")
}

func BenchmarkTurn(b *testing.B) {
	k, _ := full(65536)
	rng := rand.New(rand.NewPCG(2, 2))
	for b.Loop() {
		k.turn(rng.IntN(4096))
	}
}
