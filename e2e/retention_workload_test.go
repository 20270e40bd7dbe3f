package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"ckptfs/evict/retention/sim"
)

// TestRetentionWorkload plays short rows of tools/workload through a mount. They
// give what the simulation does: exactly, but for a store that takes longer than
// eviction has patience with it, on a machine that has other things to do.
func TestRetentionWorkload(t *testing.T) {
	requireFUSE(t)
	if testing.Short() {
		t.Skip("half a minute")
	}
	const conversations, turns, l1MiB = 12, 7, 32
	tool := filepath.Join(t.TempDir(), "workload")
	if out, err := exec.Command("go", "build", "-o", tool, "ckptfs/tools/workload").CombinedOutput(); err != nil {
		t.Fatalf("building tools/workload: %v\n%s", err, out)
	}
	for _, row := range []struct {
		shape  sim.Shape
		policy string
	}{{sim.Agent, "adaptive"}, {sim.Agent, "recency"}, {sim.Fork, "adaptive"}, {sim.ChatSide, "adaptive"}} {
		t.Run(string(row.shape)+" "+row.policy, func(t *testing.T) {
			out, err := exec.Command(tool, "--ckptfs", suite.binary, "--dir", t.TempDir(), "--json",
				"--workload", string(row.shape), "--policy", row.policy, "--l1", fmt.Sprint(l1MiB),
				"--conversations", fmt.Sprint(conversations), "--turns", fmt.Sprint(turns)).Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderrOf(err))
			}
			var got struct {
				Written       float64 `json:"written_mib"`
				Flushed       float64 `json:"flushed_mib"`
				Failed        int     `json:"failed_restores"`
				Restored      int     `json:"restored"`
				Continuations int     `json:"continuations"`
				Retired       int     `json:"retired"`
			}
			must(t, json.Unmarshal(out, &got))
			want := sim.Run(sim.Script{Shape: row.shape, Visits: sim.Visits(sim.RoundRobin, conversations, turns, 1)}, l1MiB, sim.Policies[row.policy]())
			pages := func(mib float64) int { return int(math.Round(mib * sim.PagesPerMiB)) }
			g := fmt.Sprintf("written %d, flushed %d pages, failed %d, restored %d of %d, retired %d",
				pages(got.Written), pages(got.Flushed), got.Failed, got.Restored, got.Continuations, got.Retired)
			w := fmt.Sprintf("written %d, flushed %d pages, failed %d, restored %d of %d, retired %d",
				want.Written, want.Flushed, want.Failed, want.Restored, want.Continuations, want.Retired)
			near := func(got, want int) bool { return abs(got-want) <= max(want/20, 5) }
			if got.Failed != want.Failed || got.Restored != want.Restored || got.Continuations != want.Continuations ||
				!near(pages(got.Written), want.Written) || !near(pages(got.Flushed), want.Flushed) || !near(got.Retired, want.Retired) {
				t.Errorf("the mount: %s\nthe simulation: %s", g, w)
			} else if g != w {
				t.Logf("not the same: the mount: %s\nthe simulation: %s", g, w)
			}
			if want.Written == 0 {
				t.Error("nothing was written: there was no pressure")
			}
		})
	}
}

func abs(n int) int { return max(n, -n) }

func stderrOf(err error) []byte {
	if e, ok := err.(*exec.ExitError); ok {
		return e.Stderr
	}
	return nil
}
