package index

import (
	"fmt"
	"math"
	"testing"
)

func TestLayout(t *testing.T) {
	m, err := ParseManifest([]byte(testManifest))
	if err != nil {
		t.Fatal(err)
	}
	m.Groups = append(m.Groups, Group{Name: "empty", Role: RoleRecurrent, PageBytes: 1}, Group{Name: "last", Role: RoleRecurrent, PageBytes: 1, Positions: []uint32{7, 9}})
	l := m.Layout(3)
	if l.PerRank() != 7 || l.Total() != 21 {
		t.Errorf("%d pages of a rank, %d of all", l.PerRank(), l.Total())
	}
	if want := int64(3 * (5*6893568 + 2)); l.Bytes() != want {
		t.Errorf("%d bytes, want %d", l.Bytes(), want)
	}
	slot := 0
	for rank := range 3 {
		for g := range l.Groups {
			if i, ok := l.GroupIndex(l.Groups[g].Name); !ok || i != g {
				t.Errorf("group %s is %d, %v", l.Groups[g].Name, i, ok)
			}
			for i, pos := range l.Groups[g].Positions {
				if got := l.Slot(rank, g, i); got != slot {
					t.Errorf("slot %d, want %d", got, slot)
				}
				if r, gg, ii := l.At(slot); r != rank || gg != g || ii != i {
					t.Errorf("slot %d is at %d %d %d", slot, r, gg, ii)
				}
				if ii, ok := l.Groups[g].PositionIndex(pos); !ok || ii != i {
					t.Errorf("position %d is %d, %v", pos, ii, ok)
				}
				slot++
			}
		}
	}
	if _, ok := l.GroupIndex("no"); ok {
		t.Error("a group that is not there")
	}
	if _, ok := l.Groups[0].PositionIndex(3); ok {
		t.Error("a position that is not there")
	}
	large := &Manifest{Groups: []Group{{PageBytes: MaxPageBytes, Positions: make([]uint32, MaxPositions)}}}
	for range 3 {
		large.Groups = append(large.Groups, large.Groups...)
	}
	if got := large.Layout(MaxWorldSize).Bytes(); got != math.MaxInt64 {
		t.Errorf("%d bytes, want the largest number", got)
	}
}

func TestPositionName(t *testing.T) {
	for pos, name := range map[uint32]string{0: "00000000", 39: "00000039", 99999999: "99999999", 100000000: "100000000", math.MaxUint32: "4294967295"} {
		if got := PositionName(pos); got != name {
			t.Errorf("%d is named %s, want %s", pos, got, name)
		}
		if got, ok := ParsePosition(name); !ok || got != pos {
			t.Errorf("%s is %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "0", "0000039", "000000039", "0000003a", "+0000039", "-0000039", "4294967296", "99999999999999999999", "0000 039", ".00000039"} {
		if _, ok := ParsePosition(name); ok {
			t.Errorf("%q is taken for a position", name)
		}
	}
}

func BenchmarkDerive(b *testing.B) {
	for _, c := range []struct{ groups, positions, ranks int }{{64, 40, 4}, {4096, 16, 1}} {
		b.Run(fmt.Sprintf("%d groups of %d in %d ranks", c.groups, c.positions, c.ranks), func(b *testing.B) {
			m, err := ParseManifest(manifestOf(c.groups, c.positions, 40239, "attention"))
			if err != nil {
				b.Fatal(err)
			}
			tokens := testTokens(m.NumTokens, 1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Derive(Digest{}, c.ranks, tokens); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.groups*c.positions*c.ranks), "ns/key")
		})
	}
}

func BenchmarkParseManifest(b *testing.B) {
	for _, positions := range []int{40, 1 << 17} {
		raw := manifestOf(16, positions, 1<<20, "attention")
		b.Run(fmt.Sprintf("%d bytes", len(raw)), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseManifest(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
