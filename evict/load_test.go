package evict

import (
	"slices"
	"testing"

	"ckptfs/index"
)

// TestPrefetchInTurn: ranks ask for their pages all at the same time, so none
// waits until the pages of those before it are there.
func TestPrefetchInTurn(t *testing.T) {
	m := &index.Manifest{Groups: []index.Group{{Name: "a", Role: index.RoleAttention, PageTokens: 1, PageBytes: 1, Positions: []uint32{0, 1, 2}}}}
	l := m.Layout(3)
	slots := []int{0, 2, 4, 5, 6} // of the ranks: 0 2, 1 2, 0
	var asked []int
	for _, n := range inTurn(l, slots) {
		asked = append(asked, slots[n])
	}
	if want := []int{0, 6, 4, 2, 5}; !slices.Equal(asked, want) {
		t.Errorf("brought in the order %v, want %v", asked, want)
	}
}
