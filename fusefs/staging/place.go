package staging

import (
	"fmt"
	"strconv"
	"strings"

	"ckptfs/index"
)

// maxRanks is the largest world size.
const maxRanks = 1024

// Level says which kind of directory of a staging a Place is.
type Level uint8

const (
	LevelRoot        Level = iota // the staging itself
	LevelRank                     // rank-<r>
	LevelGroup                    // rank-<r>/<group>
	LevelProvisional              // rank-<r>/<name> made before the manifest was there
)

// Place is a directory of a staging or of a generation.
type Place struct {
	Level Level `json:"l"`
	Rank  int   `json:"r,omitempty"`
	Group int   `json:"g,omitempty"` // index in the manifest, or number of the provisional name
}

// RankName is the name of a rank's directory.
func RankName(rank int) string { return "rank-" + strconv.Itoa(rank) }

// ParseRank reads a rank directory's name; only the form RankName gives.
func ParseRank(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "rank-")
	if !ok || len(digits) == 0 || len(digits) > 4 {
		return 0, false
	}
	r, err := strconv.Atoi(digits)
	return r, err == nil && RankName(r) == name
}

// EntryType says what a name in a staging is.
type EntryType uint8

const (
	EntryDir EntryType = iota
	EntryManifest
	EntryTokens
	EntryPlan
	EntryError
	EntryPage    // a page at its position
	EntryScratch // a file with a name that begins with a dot
)

// Entry is a name in a staging. Cookie orders a directory's entries and is the
// same for the entry's whole life.
type Entry struct {
	Name   string
	Type   EntryType
	Place  Place // of a directory
	Page   PageRef
	Slot   int // of a page in a layout
	Cookie uint64
}

// Cookies: the made and written files of the root, then ranks; positions; then
// scratch files by id.
const (
	cookieManifest = 1 + iota
	cookieTokens
	cookiePlan
	cookieError
	cookieRank    = 16
	cookieScratch = 1 << 40
)

// provisionalCookie follows every group's.
const provisionalCookie = 1 << 20

// SlotPath is where a generation has the page of a slot.
func SlotPath(l *index.Layout, slot int) string {
	rank, group, i := l.At(slot)
	g := &l.Groups[group]
	return fmt.Sprintf("%s/%s/%s", RankName(rank), g.Name, index.PositionName(g.Positions[i]))
}
