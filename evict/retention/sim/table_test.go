package sim

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// exact holds the pages written and flushed, so that a change of the policy is
// seen, whether it is for the better or not. The model has no chance in it;
// floating point may differ by machine, so they hold for amd64.
var exact = map[string][2][2]int{ // recency, adaptive
	"agent 32":     {{3828, 96}, {769, 311}},
	"agent 48":     {{3718, 134}, {346, 491}},
	"agent 64":     {{1206, 288}, {27, 810}},
	"agent 96":     {{0, 1098}, {0, 1098}},
	"side 48":      {{4607, 241}, {874, 495}},
	"side 64":      {{3583, 311}, {445, 638}},
	"side 96":      {{1557, 1158}, {0, 1155}},
	"fork 64":      {{3035, 430}, {457, 555}},
	"fork 96":      {{1216, 1070}, {9, 1053}},
	"chat+side 64": {{3583, 311}, {445, 638}},
	"chat+side 96": {{1557, 1158}, {0, 1155}},
}

// TestTable plays WORKLOAD.md's table. With -v it prints it.
func TestTable(t *testing.T) {
	var out strings.Builder
	out.WriteString("\n| workload | RAM MiB | reference, measured | target | recency | adaptive | offline, farthest | pages read from disk, recency → adaptive | restored from RAM alone, recency → adaptive |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range Table {
		name := fmt.Sprintf("%s %d", row.Shape, row.RAMMiB)
		t.Run(name, func(t *testing.T) {
			recency := Run(row.Script(), row.RAMMiB, Policies["recency"]())
			adaptive := Run(row.Script(), row.RAMMiB, Policies["adaptive"]())
			offline := Run(row.Script(), row.RAMMiB, NewOracle(row.Script(), Farthest))
			fmt.Fprintf(&out, "| %s | %d | %s | ≤ %g, 0, ≥ %d | %s | **%s** | %s | %d → %d | %d → %d of %d |\n",
				row.Shape, row.RAMMiB, row.Reference, row.Target, row.Restored, recency, adaptive, offline,
				recency.ReadBack, adaptive.ReadBack, recency.AtOnce, adaptive.AtOnce, adaptive.Restores)

			if adaptive.Failed+recency.Failed+offline.Failed != 0 {
				t.Errorf("failed restores: recency %d, adaptive %d, offline %d", recency.Failed, adaptive.Failed, offline.Failed)
			}
			if got := MiB(adaptive.Written); got > row.Target {
				t.Errorf("adaptive wrote %.1f MiB, the target is %g", got, row.Target)
			}
			if adaptive.Continuations != 180 || adaptive.Restored < row.Restored {
				t.Errorf("adaptive restored %d of %d, the target is %d", adaptive.Restored, adaptive.Continuations, row.Restored)
			}
			got := [2][2]int{{recency.Written, recency.Flushed}, {adaptive.Written, adaptive.Flushed}}
			if runtime.GOARCH == "amd64" && got != exact[name] {
				t.Errorf("pages written and flushed by recency, adaptive: %v, recorded %v", got, exact[name])
			}
		})
	}
	t.Log(out.String())
}

// TestRecencyIsTheReference compares plain recency with the figures that
// WORKLOAD.md has for the reference's policy, from another simulation.
func TestRecencyIsTheReference(t *testing.T) {
	for _, row := range Table {
		r := Run(row.Script(), row.RAMMiB, Policies["recency"]())
		if d := MiB(r.Written) - row.Simulated; d < -12 || d > 12 {
			t.Errorf("%s %d: recency writes %.0f MiB, the other simulation %.0f", row.Shape, row.RAMMiB, MiB(r.Written), row.Simulated)
		}
	}
}

// TestOtherOrders plays orders of visits that the policy can't foresee.
// Adaptive may not write a tenth more than recency, nor restore less.
func TestOtherOrders(t *testing.T) {
	seeds := uint64(2)
	var out strings.Builder
	out.WriteString("\n| order | workload | RAM MiB | recency | adaptive | offline, farthest | pages read from disk, recency → adaptive |\n|---|---|---|---|---|---|---|\n")
	rows := []Row{
		{Shape: Agent, RAMMiB: 32}, {Shape: Agent, RAMMiB: 48}, {Shape: Side, RAMMiB: 48}, {Shape: Side, RAMMiB: 64},
		{Shape: Fork, RAMMiB: 64}, {Shape: ChatSide, RAMMiB: 64}, {Shape: Mixed, RAMMiB: 48}, {Shape: Mixed, RAMMiB: 64},
	}
	for _, order := range Orders {
		for _, row := range rows {
			var recency, adaptive, offline Result
			for seed := range seeds {
				s := Script{row.Shape, Visits(order, Conversations, Turns, seed)}
				r := Run(s, row.RAMMiB, Policies["recency"]())
				a := Run(s, row.RAMMiB, Policies["adaptive"]())
				if a.Failed != 0 || a.Restored < r.Restored || 10*a.Written > 11*r.Written {
					t.Errorf("%s, %s, %d MiB, seed %d: recency %s, adaptive %s", order, row.Shape, row.RAMMiB, seed, r, a)
				}
				recency.add(r)
				adaptive.add(a)
				if testing.Verbose() { // it takes most of the time
					offline.add(Run(s, row.RAMMiB, NewOracle(s, Farthest)))
				}
			}
			fmt.Fprintf(&out, "| %s | %s | %d | %s | **%s** | %s | %d → %d |\n", order, row.Shape, row.RAMMiB,
				recency.mean(int(seeds)), adaptive.mean(int(seeds)), offline.mean(int(seeds)),
				recency.ReadBack/int(seeds), adaptive.ReadBack/int(seeds))
		}
	}
	t.Log(out.String())
}

// TestSameAgain plays a row twice: the same decisions, whatever maps do.
func TestSameAgain(t *testing.T) {
	for _, shape := range []Shape{Fork, Mixed} {
		s := Script{shape, Visits(Phases, Conversations, Turns, 7)}
		first, second := Run(s, 48, Policies["adaptive"]()), Run(s, 48, Policies["adaptive"]())
		if first != second {
			t.Errorf("%s: %+v, then %+v", shape, first, second)
		}
	}
}

func (r *Result) add(x Result) {
	r.Written += x.Written
	r.Flushed += x.Flushed
	r.Restored += x.Restored
	r.Failed += x.Failed
	r.ReadBack += x.ReadBack
}

// mean describes the mean of n results.
func (r Result) mean(n int) string {
	return fmt.Sprintf("%.1f (+%.0f), %d, %.4g", MiB(r.Written)/float64(n), MiB(r.Flushed)/float64(n), r.Failed, float64(r.Restored)/float64(n))
}

func (r Result) String() string { return r.mean(1) }
