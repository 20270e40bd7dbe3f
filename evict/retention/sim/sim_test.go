package sim

import (
	"fmt"
	"testing"
	"time"

	"ckptfs/evict/retention"
)

const grace = 24 * time.Hour

type row struct {
	s   Shape
	mib int
}

func explore(sc Script, mib int) {
	for i, p := range []Policy{retention.NewRecency(grace), retention.NewAdaptive(grace, retention.DefaultCosts())} {
		x := Run(sc, mib, p)
		fmt.Printf(" | %6.1f (+%5.1f) f%d r%3d/%d ret%3d read %4d/%5d", MiB(x.Written), MiB(x.Flushed), x.Failed, x.Restored, x.Continuations, x.Retired, x.ReadBack, x.ReadRAM)
		if i == 1 {
			fmt.Println()
		}
	}
}

func TestExplore(t *testing.T) {
	for _, r := range []row{{Agent, 32}, {Agent, 48}, {Agent, 64}, {Agent, 96}, {Side, 48}, {Side, 64}, {Side, 96}, {Fork, 64}, {Fork, 96}, {ChatSide, 64}, {ChatSide, 96}} {
		sc := Script{r.s, Visits(RoundRobin, 12, 16, 1)}
		fmt.Printf("%-14s %-10s %3d", "", r.s, r.mib)
		explore(sc, r.mib)
	}
	for _, o := range Orders {
		for _, r := range []row{{Agent, 32}, {Agent, 48}, {Side, 48}, {Side, 64}, {Fork, 64}, {ChatSide, 64}, {Mixed, 48}, {Mixed, 64}} {
			for seed := range uint64(6) {
				sc := Script{r.s, Visits(o, 12, 16, seed)}
				fmt.Printf("%-14s %-10s %3d", o, r.s, r.mib)
				explore(sc, r.mib)
			}
		}
	}
}
