package retention

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTreeHomes publishes and retires at random, with pages: each generation
// brings one and has its parent's. A linked page's home must cover all the
// generations that have it, with no more retired nodes than live ones.
func TestTreeHomes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTree()
		pages := map[ID][]int{} // of live generations
		homes := map[int]ID{}
		next := ID(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var live []ID
			for id := range pages {
				live = append(live, id)
			}
			slices.Sort(live)
			if len(live) > 0 && rapid.IntRange(0, 2).Draw(t, "retire") == 0 {
				id := rapid.SampledFrom(live).Draw(t, "which")
				delete(pages, id)
				applyMoves(homes, linked(pages), tr.remove(tr.get(id)))
			} else {
				next++
				parent := rapid.SampledFrom(append(live, 0)).Draw(t, "parent")
				tr.add(Generation{ID: next, Parent: parent})
				pages[next] = append(slices.Clone(pages[parent]), int(next))
				homes[int(next)] = next
			}
			checkHomes(t, &tr, pages, homes)
		}
	})
}

func linked(pages map[ID][]int) map[int]bool {
	out := map[int]bool{}
	for _, ps := range pages {
		for _, p := range ps {
			out[p] = true
		}
	}
	return out
}

func applyMoves(homes map[int]ID, linked map[int]bool, moves []Move) {
	for _, m := range moves {
		for p, h := range homes {
			switch {
			case !linked[p]:
				delete(homes, p)
			case h == m.From:
				homes[p] = m.To
			}
		}
	}
}

func checkHomes(t *rapid.T, tr *tree, pages map[ID][]int, homes map[int]ID) {
	gone := 0
	for _, n := range tr.nodes {
		kids := 0
		for c := n.child; c != nil; c = c.next {
			kids++
		}
		if kids != n.kids || n.gone && kids < 2 {
			t.Fatalf("node %d (retired: %v) counts %d children and has %d", n.ID, n.gone, n.kids, kids)
		}
		if n.gone {
			gone++
		}
	}
	if live := len(tr.nodes) - gone; live != len(pages) || gone > live || gone != tr.forks {
		t.Fatalf("%d live and %d retired nodes for %d generations", live, gone, len(pages))
	}
	for id, ps := range pages {
		for _, p := range ps {
			home := map[ID]bool{homes[p]: true}
			if tr.Uncovered(home, id); len(home) > 0 {
				t.Fatalf("page %d has the home %d, which doesn't cover %d", p, homes[p], id)
			}
		}
	}
}
