// Package retention decides what the RAM tier gives up first, and whether it
// is worth a write. It is pure: no I/O, no clock, no lock. Time is handed in,
// nothing is random, and the same events give the same decisions.
//
// A policy knows generations, not pages. The driver (package evict) knows
// which pages are in RAM, which have a disk copy, how often they are linked
// and who leases them. See RETENTION.md for the reasoning and the figures.
//
// # What the driver owes
//
//   - Events in the order of the index's transactions: Published, Hit (a
//     lookup returned the generation), Missed (a lookup would have returned a
//     generation that a Drop took), Retired (for every reason, a Drop too).
//   - A home for each page: an own page's home is its generation; a shared
//     page's home is the shortest generation that has it, in practice the one
//     whose publication brought it. Of the pages that a publication finds
//     there already, those whose home doesn't cover it (Uncovered) (it can be so after a
//     retirement) get its Parent as home, or without one itself. When Retired
//     returns moves, the pages of From that are still linked get the home To.
//   - To evict, it passes the homes with pages in RAM to Victims and applies
//     the decisions in order until the low watermark is reached: always down
//     to the watermark, since a plan costs O(generations). A decision about a
//     generation that is gone, or touched since, is skipped.
//   - Leases, writers and link counts are the driver's: a leased page is
//     skipped, whatever the decision; Drop retires the generation in the index
//     first, then frees only those of its pages that nothing links any more.
//   - WriteBack writes only pages that some current generation needs; a page
//     already on disk is evicted without a write. Own pages go together: a
//     decision about them is completed even when the watermark is reached.
//   - If the decisions run out early (leases, failed writes), it waits for a
//     release or an event; it doesn't ask again at once.
//   - Calls are serialised by the driver's own lock, which no lookup takes:
//     lookups queue their Hit.
package retention

import (
	"iter"
	"time"
)

// ID names a generation for as long as the policy knows it; 0 is none. A
// generation that is published again after its retirement has a new ID.
type ID uint64

// Kind is a generation's kind (contract section 3).
type Kind uint8

// The kinds of generation.
const (
	Instruction Kind = iota
	Prompt
	Response
)

// Generation is what a policy is told about a newly published generation.
type Generation struct {
	ID       ID
	Identity uint64 // nothing learned about one identity is used for another
	Request  uint64 // equal for the generations of one request
	Kind     Kind
	Tokens   int
	// Parent is the longest published proper prefix, of any request; 0 if
	// there is none. It differs from contract section 8's parent only where
	// the prefix belongs to the same request.
	Parent ID
	// Kept is contract section 8's parent, where the publication is what has
	// made it one: a fork point, and current, whatever it was. 0 if none.
	Kept ID
	// What has become of it: false at its publication, unless the policy is told
	// late, by a driver that begins anew.
	Fork         bool // a prompt of another request extends it
	Superseded   bool
	SupersededAt time.Duration
}

// Resident counts the bytes in RAM of the pages whose home is Gen.
type Resident struct {
	Gen    ID
	Own    Bytes // pages that only Gen can have: recurrent, auxiliary, partial
	Shared Bytes // pages that longer generations have too
}

// Bytes splits a byte count by what eviction would cost.
type Bytes struct {
	Dirty int64 // the only copy is in RAM
	Clean int64 // there is a disk copy
}

// Part is the part of a home's pages that a decision is about.
type Part uint8

// The parts of a home.
const (
	Own Part = iota
	Shared
)

// Action is what to do with the pages of a decision.
type Action uint8

// The actions, from the cheapest.
const (
	// Evict gives up the RAM copy of pages that are on disk too.
	Evict Action = iota
	// WriteBack writes pages that are only in RAM, then gives up the RAM copy.
	WriteBack
	// Drop retires the generation and frees its unlinked pages, unwritten.
	Drop
)

// Decision is one step of an eviction.
type Decision struct {
	Gen    ID
	Part   Part // of no meaning for Drop, which concerns all pages
	Action Action
	Reason Reason
}

// Reason says in status, in metrics and in `ckptfs why` what led to a
// decision.
type Reason string

// The reasons.
const (
	ReasonSuperseded Reason = "superseded"
	ReasonForkPoint  Reason = "superseded fork point"
	ReasonUnlikely   Reason = "kind is not continued"
	ReasonCold       Reason = "coldest"
)

// Move says that the pages whose home is From, and that are still linked, get
// the home To. Where To is 0 there should be none; if there are (generations
// without a common ancestor share pages), any that links them will do.
type Move struct{ From, To ID }

// Policy ranks what is in RAM. Costs: O(1) amortised for Hit and Retired (a
// visit also looks at up to 32 generations of its conversation), O(number
// superseded) for Published, and O(n + v log n) for v decisions taken from
// Victims, with n generations known. An eviction frees a sixth of the tier, so
// that is amortised O(log n) per generation. Memory: a few hundred bytes per
// known generation, nothing per page.
type Policy interface {
	// Published tells of a publication and of what it superseded.
	Published(now time.Duration, g Generation, superseded []ID)
	// Hit tells that a lookup returned the generation: it is current again.
	Hit(now time.Duration, id ID)
	// Missed tells that a lookup would have returned the retired generation.
	Missed(now time.Duration, id ID)
	// Retired tells that the generation is gone, whatever the reason.
	Retired(id ID) []Move
	// Uncovered takes those out of homes that id is or descends from: the rank
	// of their shared pages heeds id. It costs O(known ancestors), or less if
	// they are all covered.
	Uncovered(homes map[ID]bool, id ID)
	// Victims ranks the resident pages, first to go first. The sequence may be
	// abandoned, and Retired may be called between two of its elements.
	Victims(now time.Duration, resident []Resident) iter.Seq[Decision]
	// Coldest ranks all generations, for the disk tier's bound and for the
	// bound on their number: which to retire first, as a whole.
	Coldest(now time.Duration) iter.Seq[ID]
	// Stats tells what the policy holds.
	Stats() Stats
}

// Stats counts what a policy holds, for status.
type Stats struct {
	Generations   int
	Forks         int // retired ones kept because branches part there; below Generations
	Conversations int
	Identities    int
	Bytes         int64 // an estimate of the memory held
}
