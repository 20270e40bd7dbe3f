package retention

// ghostCount bounds what is remembered of the dead.
const ghostCount = 4096

// ghost is what is left of a retired generation, to learn from its loss.
type ghost struct {
	id       ID
	identity uint64
	trait    trait
}

// ghosts remembers the last retired generations, in a ring.
type ghosts struct {
	byID map[ID]ghost
	ring []ID
	next int
}

func (g *ghosts) add(x ghost) {
	if g.byID == nil {
		g.byID = make(map[ID]ghost)
	}
	if len(g.ring) < ghostCount {
		g.ring = append(g.ring, x.id)
	} else {
		delete(g.byID, g.ring[g.next])
		g.ring[g.next] = x.id
		g.next = (g.next + 1) % ghostCount
	}
	g.byID[x.id] = x
}

// take removes and returns a ghost, so that a loss is learned from once.
func (g *ghosts) take(id ID) (ghost, bool) {
	x, ok := g.byID[id]
	delete(g.byID, id)
	return x, ok
}
