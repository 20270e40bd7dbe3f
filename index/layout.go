package index

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
)

// Layout tells where each page of a generation is: which ranks, groups and
// positions there are, and a slot number for each page, from 0, rank by rank,
// in a rank group by group, in a group in the order of its positions.
// It is not changed once made.
type Layout struct {
	WorldSize int
	Groups    []Group // without their PageDigests

	first  []int // first[g] is the slot of group g's first page in rank 0; then the pages of a rank
	byName map[string]int
}

// Layout returns the layout of the manifest's pages over worldSize ranks.
// It shares the positions with the manifest.
func (m *Manifest) Layout(worldSize int) *Layout {
	l := &Layout{
		WorldSize: worldSize,
		Groups:    slices.Clone(m.Groups),
		first:     make([]int, len(m.Groups)+1),
		byName:    make(map[string]int, len(m.Groups)),
	}
	for i := range l.Groups {
		g := &l.Groups[i]
		g.PageDigests = nil
		l.first[i+1] = l.first[i] + len(g.Positions)
		l.byName[g.Name] = i
	}
	return l
}

// PerRank returns how many pages each rank has.
func (l *Layout) PerRank() int { return l.first[len(l.Groups)] }

// Total returns how many pages all ranks have together.
func (l *Layout) Total() int { return l.PerRank() * l.WorldSize }

// Bytes returns the sizes of all pages of all ranks together, math.MaxInt64
// if it is more than that.
func (l *Layout) Bytes() int64 {
	total := 0.0 // exact as far as it matters: the sum below is only made if it is small
	for i := range l.Groups {
		total += float64(l.Groups[i].PageBytes) * float64(len(l.Groups[i].Positions)) * float64(l.WorldSize)
	}
	if total >= 1<<62 {
		return math.MaxInt64
	}
	var sum int64
	for i := range l.Groups {
		sum += l.Groups[i].PageBytes * int64(len(l.Groups[i].Positions)) * int64(l.WorldSize)
	}
	return sum
}

// Slot returns the slot of the i-th position of a group in a rank.
func (l *Layout) Slot(rank, group, i int) int {
	return rank*l.PerRank() + l.first[group] + i
}

// At is the inverse of Slot: the rank, the group and the index in its
// Positions of a slot from 0 to Total()-1.
func (l *Layout) At(slot int) (rank, group, i int) {
	rank, slot = slot/l.PerRank(), slot%l.PerRank()
	group = sort.Search(len(l.Groups), func(g int) bool { return l.first[g+1] > slot })
	return rank, group, slot - l.first[group]
}

// GroupIndex returns the index in Groups of a name.
func (l *Layout) GroupIndex(name string) (int, bool) {
	i, ok := l.byName[name]
	return i, ok
}

// PositionIndex returns the index in Positions of a position.
func (g *Group) PositionIndex(pos uint32) (int, bool) {
	return slices.BinarySearch(g.Positions, pos)
}

// PositionName returns a page's file name: decimal, at least 8 digits.
func PositionName(pos uint32) string { return fmt.Sprintf("%08d", pos) }

// ParsePosition reads a page's file name, in the form that PositionName
// gives and no other.
func ParsePosition(s string) (uint32, bool) {
	if len(s) < 8 || len(s) > 8 && s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}
