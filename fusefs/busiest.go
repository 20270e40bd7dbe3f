package fusefs

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"ckptfs/index"
)

// ModelUse is what a model has been used for since it is among the busiest, in
// this daemon's life.
type ModelUse struct {
	Model          string `json:"model"`
	Lookups        int64  `json:"lookups"`
	Hits           int64  `json:"hits"`
	FoundBytes     int64  `json:"found_bytes"` // of the generations found
	Published      int64  `json:"published"`
	PublishedBytes int64  `json:"published_bytes"` // shared pages included
}

// busiest counts the use of the models that are used most. How busy one is fades
// by half in busyHalfLife. The lock is a leaf.
type busiest struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		models map[index.ObjectID]*modelUse
	}
}

type modelUse struct {
	ModelUse
	score float64 // as of at
	at    time.Time
}

const (
	// maxBusiest bounds how many models are counted: who is no longer among them
	// begins at 0 when it is back.
	maxBusiest   = 64
	busyHalfLife = time.Minute
)

func newBusiest(now func() time.Time) *busiest {
	b := &busiest{now: now}
	b.mu.models = map[index.ObjectID]*modelUse{}
	return b
}

// lookup counts a lookup of a model; found is nil if it was none.
func (b *busiest) lookup(m *index.Model, found *index.Generation) {
	b.count(m, func(u *ModelUse) {
		u.Lookups++
		if found != nil {
			u.Hits++
			u.FoundBytes += found.PageBytes
		}
	})
}

func (b *busiest) published(g *index.Generation) {
	b.count(g.Identity.Model, func(u *ModelUse) {
		u.Published++
		u.PublishedBytes += g.PageBytes
	})
}

func (b *busiest) count(m *index.Model, add func(*ModelUse)) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.mu.models[m.ID]
	if u == nil {
		if len(b.mu.models) >= maxBusiest {
			b.dropIdlestLocked(now)
		}
		u = &modelUse{ModelUse: ModelUse{Model: m.Name}}
		b.mu.models[m.ID] = u
	}
	add(&u.ModelUse)
	u.score, u.at = u.scoreAt(now)+1, now
}

func (u *modelUse) scoreAt(now time.Time) float64 {
	return u.score * math.Exp2(-now.Sub(u.at).Seconds()/busyHalfLife.Seconds())
}

func (b *busiest) dropIdlestLocked(now time.Time) {
	least, score := index.ObjectID(0), math.Inf(1)
	for id, u := range b.mu.models {
		if s := u.scoreAt(now); s < score {
			least, score = id, s
		}
	}
	delete(b.mu.models, least)
}

// list gives the models, the busiest first.
func (b *busiest) list() []ModelUse {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.SortedFunc(maps.Values(b.mu.models), func(a, b *modelUse) int {
		return cmp.Or(cmp.Compare(b.scoreAt(now), a.scoreAt(now)), cmp.Compare(a.Model, b.Model))
	})
	list := make([]ModelUse, len(all))
	for i, u := range all {
		list[i] = u.ModelUse
	}
	return list
}
