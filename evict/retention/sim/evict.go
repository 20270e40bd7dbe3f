package sim

import (
	"fmt"
	"slices"

	"ckptfs/evict/retention"
)

// rest lets eviction come to rest: the driver's part of the work.
func (s *Store) rest() {
	if !s.overdue() {
		return
	}
	for d := range s.policy.Victims(s.clock, s.resident()) {
		switch {
		case s.ram <= s.low():
			return
		case d.Action == retention.Drop:
			s.retire(d.Gen)
		default:
			s.evict(d)
		}
	}
	if s.overdue() {
		panic(fmt.Sprintf("eviction ends with %d pages of %d in RAM", s.ram, s.capacity))
	}
}

// resident counts, in a fixed order, the pages in RAM by their homes.
func (s *Store) resident() []retention.Resident {
	out := make([]retention.Resident, 0, len(s.homes))
	for id, h := range s.homes {
		r := retention.Resident{Gen: id}
		for _, p := range h.pages {
			b := &r.Shared
			if p.own {
				b = &r.Own
			}
			switch {
			case !p.ram:
			case p.disk:
				b.Clean++
			default:
				b.Dirty++
			}
		}
		if r.Own != (retention.Bytes{}) || r.Shared != (retention.Bytes{}) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b retention.Resident) int { return int(a.Gen) - int(b.Gen) })
	return out
}

// evict takes pages of a home out of RAM: own pages all, shared ones only as
// many as it takes, the last to come first.
func (s *Store) evict(d retention.Decision) {
	h := s.homes[d.Gen]
	if h == nil {
		return
	}
	for _, p := range slices.Backward(h.pages) {
		if p.own != (d.Part == retention.Own) || !p.ram || p.disk != (d.Action == retention.Evict) {
			continue
		}
		if d.Action == retention.WriteBack {
			if p.current == 0 {
				continue
			}
			p.disk = true
			s.Written++
		}
		p.ram = false
		s.ram--
		if !p.own && s.ram <= s.low() {
			return
		}
	}
}

// retire takes a generation out of the index, then frees what nothing links.
func (s *Store) retire(id retention.ID) {
	g := s.all[id-1]
	if g.retired {
		return
	}
	s.setSuperseded(g, true)
	g.retired = true
	s.Retired++
	delete(s.published, g.key)
	s.lost[g.key] = g
	s.requests[g.Request] = slices.DeleteFunc(s.requests[g.Request], func(m retention.Member) bool { return m.ID == id })
	for i, p := range g.pages {
		p.links--
		if p.links > 0 {
			continue
		}
		if p.ram {
			s.ram--
		}
		p.ram, p.disk = false, false
		s.rehome(p, 0)
		if !p.own {
			delete(s.attention, g.key[:4*PageTokens*(i+1)])
		}
	}
	for _, m := range s.policy.Retired(id) {
		s.move(m)
	}
}

func (s *Store) move(m retention.Move) {
	h := s.homes[m.From]
	if h == nil {
		return
	}
	for _, p := range slices.Clone(h.pages) {
		if m.To == 0 {
			s.rehome(p, s.linker(p))
		} else {
			s.rehome(p, m.To)
		}
	}
}

// linker finds some generation that links the page.
func (s *Store) linker(p *page) retention.ID {
	for _, g := range slices.Backward(s.all) {
		if !g.retired && slices.Contains(g.pages, p) {
			return g.ID
		}
	}
	panic("a page without links has a home")
}
