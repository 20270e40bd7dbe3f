package sim

import (
	"time"

	"ckptfs/evict/retention"
)

// Grace is longer than any run, as WORKLOAD.md has it.
const Grace = 365 * 24 * time.Hour

// Row is a row of WORKLOAD.md's table.
type Row struct {
	Shape     Shape
	RAMMiB    int
	Reference string  // the reference's own measured figure, MiB written
	Simulated float64 // its policy in the other simulation, MiB written
	Target    float64 // MiB written, at most
	Restored  int     // of 180, at least
}

// Conversations and Turns are the size of WORKLOAD.md's model.
const (
	Conversations = 12
	Turns         = 16
)

// Table is WORKLOAD.md's table.
var Table = []Row{
	{Agent, 32, "242", 239, 110, 180},
	{Agent, 48, "228", 231, 70, 180},
	{Agent, 64, "97", 66, 5, 180},
	{Agent, 96, "0.5", 0, 0, 180},
	{Side, 48, "291", 287, 125, 180},
	{Side, 64, "224", 218, 60, 180},
	{Side, 96, "101", 100, 35, 180},
	{Fork, 64, "218", 188, 120, 165},
	{Fork, 96, "88", 76, 50, 180},
	{ChatSide, 64, "267", 221, 60, 180},
	{ChatSide, 96, "149", 100, 35, 180},
}

// Script is the row's workload.
func (r Row) Script() Script {
	return Script{Shape: r.Shape, Visits: Visits(RoundRobin, Conversations, Turns, 0)}
}

// Policies by the names of --retention.
var Policies = map[string]func() Policy{
	"recency":  func() Policy { return retention.NewRecency(Grace) },
	"adaptive": func() Policy { return retention.NewAdaptive(Grace, retention.DefaultCosts()) },
}
