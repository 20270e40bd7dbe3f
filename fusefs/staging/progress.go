package staging

import (
	"cmp"
	"slices"
	"time"

	"ckptfs/index"
)

// Progress tells how far a staging is, for people.
type Progress struct {
	Model    string         `json:"model"`
	Identity string         `json:"identity"`
	Name     string         `json:"name"`
	Seconds  int64          `json:"seconds"` // since it was held or changed last; 0 while it is held
	Ranks    []RankProgress `json:"ranks"`   // none before the manifest
}

// RankProgress counts the pages of a rank that are there, whether complete or
// still being written.
type RankProgress struct {
	Pages int `json:"pages"`
	Of    int `json:"of"`
}

// Progress lists at most most stagings, the oldest first.
func (m *Manager) Progress(most int) []Progress {
	ds := slices.DeleteFunc(m.All(), (*Draft).Ghost)
	slices.SortFunc(ds, func(a, b *Draft) int { return cmp.Compare(a.ID, b.ID) })
	list := []Progress{}
	for _, d := range ds[:min(len(ds), most)] {
		list = append(list, d.progress())
	}
	return list
}

func (d *Draft) progress() Progress {
	p := Progress{Model: d.Identity.Model.Name, Identity: d.Identity.Name, Name: d.Name(), Ranks: []RankProgress{}}
	if since := d.idleSince(); !since.IsZero() {
		p.Seconds = int64(d.m.Now().Sub(since) / time.Second)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.content == nil {
		return p
	}
	l := d.mu.content.layout
	p.Ranks = countRanks(l, d.mu.slots)
	return p
}

func countRanks(l *index.Layout, slots []slot) []RankProgress {
	ranks := make([]RankProgress, l.WorldSize)
	for i := range slots {
		r := &ranks[i/l.PerRank()]
		r.Of++
		if slots[i].page.ID != 0 {
			r.Pages++
		}
	}
	return ranks
}
