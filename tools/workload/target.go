package main

import (
	"fmt"

	"ckptfs/evict/retention/sim"
)

// target is what a row of the table is to reach.
type target struct{ sim.Row }

// target is that of a cell, if it is a row of the table as it stands there.
func (o *options) target(c cell) (target, bool) {
	whole := sim.Order(o.order) == sim.RoundRobin && o.conversations == sim.Conversations && o.turns == sim.Turns
	if !whole || c.policy != "adaptive" || o.writePolicy != "on-evict" {
		return target{}, false
	}
	for _, r := range sim.Table {
		if r.Shape == c.shape && r.RAMMiB == c.l1MiB {
			return target{r}, true
		}
	}
	return target{}, false
}

func (t target) met(r row) bool {
	return r.WrittenMiB <= t.Target && r.FailedRestores == 0 && r.Restored >= t.Restored
}

func (t target) String() string { return fmt.Sprintf("≤ %g, 0, ≥ %d", t.Target, t.Row.Restored) }
