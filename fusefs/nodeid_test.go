package fusefs

import (
	"testing"

	"pgregory.net/rapid"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
	"ckptfs/pages"
)

// TestNodesSayWhatTheyAre: what a node id was made of can be read from it, and
// no two things have the same one.
func TestNodesSayWhatTheyAre(t *testing.T) {
	seen := map[nodeID][2]any{}
	rapid.Check(t, func(t *rapid.T) {
		gen := index.ObjectID(rapid.Uint64Range(1, 1<<36-1).Draw(t, "generation"))
		p := staging.Place{
			Level: staging.Level(rapid.IntRange(0, 3).Draw(t, "level")),
			Rank:  rapid.IntRange(0, 1023).Draw(t, "rank"), Group: rapid.IntRange(0, 4095).Draw(t, "group"),
		}
		switch p.Level {
		case staging.LevelRoot:
			p.Rank, p.Group = 0, 0
		case staging.LevelRank:
			p.Group = 0
		}
		n := placeNode(gen, p)
		if n.generation() != gen || n.place() != p || !n.isDir() || !n.inGeneration() {
			t.Fatalf("%x reads as generation %d, %+v", n, n.generation(), n.place())
		}
		if n>>63 != 0 || n == nodeRoot {
			t.Fatalf("%x is no inode number that every program takes", n)
		}
		if old, there := seen[n]; there && old != [2]any{gen, p} {
			t.Fatalf("%x is both %v and %v", n, old, p)
		}
		seen[n] = [2]any{gen, p}
		if m := genNode(kindManifest, gen, staging.Place{}); m >= placeNode(gen, staging.Place{Level: staging.LevelRank}) || m.generation() != gen {
			t.Fatalf("the manifest's inode number %x is not before the ranks'", m)
		}
	})
}

func TestPageNodes(t *testing.T) {
	for _, id := range []uint64{1, 1<<36 + 5, 1<<58 - 1} {
		n := pageNode(pages.ID(id))
		if uint64(n.page()) != id || n.kind() != kindPage || n.isDir() || n.inGeneration() {
			t.Fatalf("page %d reads as %d of kind %d", id, n.page(), n.kind())
		}
	}
}
