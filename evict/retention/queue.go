package retention

import (
	"cmp"
	"container/heap"
	"iter"
)

// Classes of victims. One goes entirely before the next.
const (
	superseded = iota // and not, or no longer, in grace
	hopeless          // by experience never continued; dropped, nothing written
	ranked            // all else, by worth
)

// victim is a decision with its place in the order.
type victim struct {
	Decision
	class int     // lower goes first, whatever the worth
	worth float64 // what keeping it is worth; lower goes first
	order int64   // breaks ties: older first
}

// queue is a heap of victims: building it is O(n), taking one O(log n).
type queue []victim

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	a, b := &q[i], &q[j]
	return cmp.Or(
		cmp.Compare(a.class, b.class),
		cmp.Compare(a.worth, b.worth),
		cmp.Compare(a.order, b.order),
		cmp.Compare(a.Part, b.Part), // the tail before shared history
		cmp.Compare(a.Gen, b.Gen),
		cmp.Compare(a.Action, b.Action)) < 0
}

func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(victim)) }

func (q *queue) Pop() any {
	last := len(*q) - 1
	v := (*q)[last]
	*q = (*q)[:last]
	return v
}

// drain yields the victims in order.
func (q queue) drain() iter.Seq[Decision] {
	heap.Init(&q)
	return func(yield func(Decision) bool) {
		for len(q) > 0 {
			if !yield(heap.Pop(&q).(victim).Decision) {
				return
			}
		}
	}
}
