package retention

// node is a generation in the prefix tree, with everything a policy
// remembers of it.
type node struct {
	Generation
	parent            *node
	child, prev, next *node // first child; neighbours among the parent's children
	kids              int
	gone              bool  // retired, kept because two branches still part here
	touched           int64 // the policy's own count of touches
	adaptive          life
	rank              rank
}

// rank is what a plan computes for a node, over the generations of its
// subtree; it is valid for that plan only.
type rank struct {
	plan    uint64
	need    float64 // the nearest use: higher is nearer
	keep    float64 // the nearest use of those that are a reason to write
	current bool    // there is a reason to write
}

// tree holds the known generations. A shared page belongs to its home and all
// of the home's descendants, so that its worth is the best in the subtree.
type tree struct {
	nodes map[ID]*node
	forks int // nodes that are gone
	plan  uint64
}

func newTree() tree { return tree{nodes: make(map[ID]*node)} }

// get returns a known generation that isn't retired, or nil.
func (t *tree) get(id ID) *node {
	if n := t.nodes[id]; n != nil && !n.gone {
		return n
	}
	return nil
}

// add enters a generation; nil if it is known already.
func (t *tree) add(g Generation) *node {
	if t.nodes[g.ID] != nil || g.ID == 0 {
		return nil
	}
	n := &node{Generation: g}
	t.nodes[g.ID] = n
	if k := t.get(g.Kept); k != nil {
		k.Fork, k.Superseded = true, false
	}
	if p := t.get(g.Parent); p != nil && p.Identity == g.Identity {
		n.attach(p)
	}
	return n
}

// remove takes a retired generation out and says where its pages go. A node
// where branches part is kept, childless ones and links of a chain are not; so
// there are never more kept nodes than generations.
func (t *tree) remove(n *node) []Move {
	n.gone = true
	switch n.kids {
	case 0:
		up := n.parent
		n.detach()
		delete(t.nodes, n.ID)
		if up != nil && up.gone && up.kids == 1 {
			t.forks--
			return []Move{{n.ID, 0}, t.splice(up)}
		}
		return []Move{{n.ID, 0}}
	case 1:
		return []Move{t.splice(n)}
	}
	t.forks++
	return nil
}

// splice takes out a retired node that has one child.
func (t *tree) splice(n *node) Move {
	heir, up := n.child, n.parent
	heir.detach()
	n.detach()
	heir.attach(up)
	delete(t.nodes, n.ID)
	return Move{n.ID, heir.ID}
}

// Uncovered implements [Policy].
func (t *tree) Uncovered(homes map[ID]bool, id ID) {
	for n := t.nodes[id]; n != nil && len(homes) > 0; n = n.parent {
		delete(homes, n.ID)
	}
}

func (n *node) attach(up *node) {
	n.parent = up
	if up == nil {
		return
	}
	n.next = up.child
	if up.child != nil {
		up.child.prev = n
	}
	up.child = n
	up.kids++
}

func (n *node) detach() {
	up := n.parent
	if up == nil {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		up.child = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	up.kids--
	n.parent, n.prev, n.next = nil, nil, nil
}

// raise enters a generation's use into its own rank and those of its
// ancestors, as far as it is news there.
func (t *tree) raise(n *node, need, keep float64, current bool) {
	for ; n != nil; n = n.parent {
		r := &n.rank
		if r.plan != t.plan {
			*r = rank{plan: t.plan}
		} else if r.need >= need && r.keep >= keep && (r.current || !current) {
			return
		}
		r.need, r.keep = max(r.need, need), max(r.keep, keep)
		r.current = r.current || current
	}
}
