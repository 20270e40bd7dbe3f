package staging

import (
	"slices"
	"syscall"

	"ckptfs/index"
	"ckptfs/pages"
)

// Lookup finds a name in a directory of the staging. ENOENT; a page that its
// writer abandoned is not there.
func (d *Draft) Lookup(p Place, name string) (Entry, error) {
	e, err := d.LookupAny(p, name)
	if err == nil && e.Type == EntryPage && d.m.abandoned(e.Page) {
		return Entry{}, syscall.ENOENT
	}
	return e, err
}

// LookupAny is Lookup with abandoned pages.
func (d *Draft) LookupAny(p Place, name string) (Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = d.resolveLocked(p)
	if !d.existsLocked(p) {
		return Entry{}, syscall.ENOENT
	}
	var e Entry
	var ok bool
	switch {
	case isScratchName(name):
		e, ok = d.scratchEntryLocked(p, name)
	case p.Level == LevelRoot:
		e, ok = d.rootEntryLocked(name)
	case p.Level == LevelRank:
		e, ok = d.groupEntryLocked(p.Rank, name)
	case p.Level == LevelGroup:
		e, ok = d.pageEntryLocked(p, name)
	}
	if !ok {
		return Entry{}, syscall.ENOENT
	}
	return e, nil
}

func (d *Draft) scratchEntryLocked(p Place, name string) (Entry, bool) {
	for _, s := range d.mu.scratch {
		if s.Place == p && string(s.Name) == name {
			return scratchEntry(s), true
		}
	}
	return Entry{}, false
}

func scratchEntry(s *stagedPage) Entry {
	return Entry{Name: string(s.Name), Type: EntryScratch, Place: s.Place, Page: PageRef{s.ID, s}, Cookie: cookieScratch + uint64(s.ID)}
}

func (d *Draft) rootEntryLocked(name string) (Entry, bool) {
	if r, ok := ParseRank(name); ok {
		p := Place{Level: LevelRank, Rank: r}
		return Entry{Name: name, Place: p, Cookie: uint64(cookieRank + r)}, d.existsLocked(p)
	}
	for _, e := range d.rootFilesLocked() {
		if e.Name == name {
			return e, true
		}
	}
	return Entry{}, false
}

// rootFilesLocked lists the files of the root that are there now.
func (d *Draft) rootFilesLocked() []Entry {
	var es []Entry
	add := func(there bool, name string, t EntryType, cookie uint64) {
		if there {
			es = append(es, Entry{Name: name, Type: t, Cookie: cookie})
		}
	}
	add(d.mu.hasFile, "manifest.json", EntryManifest, cookieManifest)
	add(d.mu.hasTokens, "tokens", EntryTokens, cookieTokens)
	add(d.mu.content != nil && !d.mu.ghost && !d.mu.hidden[EntryPlan], "plan.json", EntryPlan, cookiePlan)
	add(d.mu.errorText != "" && !d.mu.hidden[EntryError], "error", EntryError, cookieError)
	return es
}

func (d *Draft) groupEntryLocked(rank int, name string) (Entry, bool) {
	if d.mu.content != nil {
		if g, ok := d.mu.content.layout.GroupIndex(name); ok {
			p := Place{LevelGroup, rank, g}
			return Entry{Name: name, Place: p, Cookie: uint64(1 + g)}, d.existsLocked(p)
		}
	}
	if k, ok := d.provisionalNumberLocked(name); ok {
		p := Place{LevelProvisional, rank, k}
		return Entry{Name: name, Place: p, Cookie: uint64(provisionalCookie + k)}, d.existsLocked(p)
	}
	return Entry{}, false
}

func (d *Draft) pageEntryLocked(p Place, name string) (Entry, bool) {
	slot, i, ok := d.slotLocked(p, name)
	if !ok || d.mu.slots[slot].page.ID == 0 {
		return Entry{}, false
	}
	return Entry{Name: name, Type: EntryPage, Place: p, Page: d.mu.slots[slot].page, Cookie: uint64(1 + i)}, true
}

// slotLocked finds the slot of a position's name.
func (d *Draft) slotLocked(p Place, name string) (slot, i int, ok bool) {
	pos, ok := index.ParsePosition(name)
	if !ok || d.mu.content == nil || p.Level != LevelGroup {
		return 0, 0, false
	}
	l := d.mu.content.layout
	if i, ok = l.Groups[p.Group].PositionIndex(pos); !ok {
		return 0, 0, false
	}
	return l.Slot(p.Rank, p.Group, i), i, true
}

// List gives at most max entries of a directory whose cookies are greater than
// after, in the order of cookies. Fewer are all that is left.
func (d *Draft) List(p Place, after uint64, max int) ([]Entry, error) {
	var all []Entry
	for {
		es, err := d.list(p, after, max-len(all))
		if err != nil {
			return nil, err
		}
		more := len(es) > 0 && len(es) == max-len(all)
		if more {
			after = es[len(es)-1].Cookie
		}
		all = append(all, slices.DeleteFunc(es, func(e Entry) bool { return e.Type == EntryPage && d.m.abandoned(e.Page) })...)
		if !more || len(all) == max {
			return all, nil
		}
	}
}

func (d *Draft) list(p Place, after uint64, max int) ([]Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = d.resolveLocked(p)
	if !d.existsLocked(p) {
		return nil, syscall.ENOENT
	}
	var es []Entry
	switch p.Level {
	case LevelRoot:
		es = d.listRootLocked()
	case LevelRank:
		es = d.listRankLocked(p.Rank)
	case LevelGroup:
		es = d.listGroupLocked(p, after, max)
	}
	for _, s := range d.mu.scratch {
		if s.Place == p {
			es = append(es, scratchEntry(s))
		}
	}
	es = slices.DeleteFunc(es, func(e Entry) bool { return e.Cookie <= after })
	slices.SortFunc(es, func(a, b Entry) int { return int(int64(a.Cookie) - int64(b.Cookie)) })
	return es[:min(len(es), max)], nil
}

func (d *Draft) listRootLocked() []Entry {
	es := d.rootFilesLocked()
	ranks := maxRanks
	if d.mu.content == nil && len(d.mu.ranks) == 0 {
		ranks = 0
	}
	for r := range ranks {
		if p := (Place{Level: LevelRank, Rank: r}); d.existsLocked(p) {
			es = append(es, Entry{Name: RankName(r), Place: p, Cookie: uint64(cookieRank + r)})
		}
	}
	return es
}

func (d *Draft) listRankLocked(rank int) []Entry {
	var es []Entry
	if d.mu.content != nil {
		for g := range d.mu.content.layout.Groups {
			if p := (Place{LevelGroup, rank, g}); d.existsLocked(p) {
				es = append(es, Entry{Name: d.mu.content.layout.Groups[g].Name, Place: p, Cookie: uint64(1 + g)})
			}
		}
	}
	for p := range d.mu.provMade {
		if p.Rank == rank && d.resolveLocked(p) == p {
			es = append(es, Entry{Name: d.mu.provisional[p.Group], Place: p, Cookie: uint64(provisionalCookie + p.Group)})
		}
	}
	return es
}

func (d *Draft) listGroupLocked(p Place, after uint64, max int) []Entry {
	l := d.mu.content.layout
	g := &l.Groups[p.Group]
	var es []Entry
	for i := int(min(after, uint64(len(g.Positions)))); i < len(g.Positions) && len(es) < max; i++ {
		if ref := d.mu.slots[l.Slot(p.Rank, p.Group, i)].page; ref.ID != 0 {
			es = append(es, Entry{Name: index.PositionName(g.Positions[i]), Type: EntryPage, Place: p, Page: ref, Cookie: uint64(1 + i)})
		}
	}
	return es
}

// Mkdir makes a directory below p: a rank's, or a group's. EPERM where the
// staging has no such place.
func (d *Draft) Mkdir(p Place, name string, attr index.Attr, sub func(Place) uint64, op index.Op) (Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return Place{}, err
	}
	p = d.resolveLocked(p)
	if !d.existsLocked(p) {
		return Place{}, syscall.ENOENT
	}
	made, err := d.mkdirPlaceLocked(p, name)
	if err != nil {
		return Place{}, err
	}
	if d.existsLocked(made) {
		return Place{}, syscall.EEXIST
	}
	if made.Level == LevelProvisional && made.Group == len(d.mu.provisional) && made.Group >= maxProvisional {
		return Place{}, refuse(syscall.EPERM, "more than %d group directories before the manifest", maxProvisional)
	}
	err = d.journal.append(record{Do: doMkdir, Op: op, Place: &made, Name: []byte(name)}, record{Do: doAttr, Sub: sub(made), Attr: &attr})
	if err != nil {
		return Place{}, err
	}
	d.applyMkdirLocked(made, name)
	d.applyAttrLocked(sub(made), attr)
	d.touchLocked()
	return made, nil
}

// maxProvisional is how many different group names may be made before the
// manifest: as many as a manifest may have.
const maxProvisional = 4096

func (d *Draft) mkdirPlaceLocked(p Place, name string) (Place, error) {
	switch {
	case d.mu.ghost:
		return Place{}, refuse(syscall.EPERM, "the generation is being removed")
	case p.Level == LevelRoot:
		r, ok := ParseRank(name)
		if !ok || r >= d.doc.WorldSize {
			return Place{}, refuse(syscall.EPERM, "%q is no rank of this identity (rank-0 to rank-%d)", name, d.doc.WorldSize-1)
		}
		return Place{Level: LevelRank, Rank: r}, nil
	case p.Level != LevelRank || !validGroupName(name):
		return Place{}, refuse(syscall.EPERM, "no directory %q here", name)
	}
	if d.mu.content != nil {
		if g, ok := d.mu.content.layout.GroupIndex(name); ok {
			return Place{LevelGroup, p.Rank, g}, nil
		}
		return Place{}, refuse(syscall.EPERM, "the manifest has no page group %q", name)
	}
	k, ok := d.provisionalNumberLocked(name)
	if !ok {
		k = len(d.mu.provisional)
	}
	return Place{LevelProvisional, p.Rank, k}, nil
}

func validGroupName(name string) bool { return len(name) > 0 && len(name) <= 255 && name[0] != '.' }

func (d *Draft) applyMkdirLocked(p Place, name string) {
	switch p.Level {
	case LevelRank:
		d.mu.ranks[p.Rank] = true
		delete(d.mu.removed, p)
	case LevelGroup:
		delete(d.mu.removed, p)
	case LevelProvisional:
		if p.Group == len(d.mu.provisional) {
			d.mu.provisional = append(d.mu.provisional, name)
		}
		d.mu.provMade[p] = true
	}
}

// Rmdir removes an empty directory below p.
func (d *Draft) Rmdir(p Place, name string, op index.Op) error {
	e, err := d.Lookup(p, name)
	if err != nil {
		return err
	}
	if e.Type != EntryDir {
		return syscall.ENOTDIR
	}
	if left, err := d.List(e.Place, 0, 1); err != nil || len(left) > 0 {
		if err == nil {
			err = syscall.ENOTEMPTY
		}
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return err
	}
	if err := d.journal.append(record{Do: doRmdir, Op: op, Place: &e.Place}); err != nil {
		return err
	}
	d.applyRmdirLocked(e.Place)
	d.touchLocked()
	return nil
}

func (d *Draft) applyRmdirLocked(p Place) {
	switch p.Level {
	case LevelRank:
		delete(d.mu.ranks, p.Rank)
		d.mu.removed[p] = true
		if d.mu.content != nil {
			return
		}
		delete(d.mu.removed, p)
	case LevelGroup:
		d.mu.removed[p] = true
	case LevelProvisional:
		delete(d.mu.provMade, p)
	}
}

// empty reports whether nothing but made files is left in the root.
func (d *Draft) empty() bool {
	es, err := d.List(Place{}, 0, maxRanks+16)
	for _, e := range es {
		if e.Type != EntryPlan && e.Type != EntryError {
			return false
		}
	}
	return err == nil
}

// StagedID reports whether the page with this id belongs to the staging.
func (d *Draft) StagedID(id pages.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.mu.scratch[id]
	return ok
}

// ListLayout lists a directory of a published generation, with the cookies that
// it had as a staging. Entry.Slot names pages; their ids are the caller's.
func ListLayout(l *index.Layout, p Place, after uint64, max int) ([]Entry, error) {
	var es []Entry
	add := func(e Entry) {
		if e.Cookie > after && len(es) < max {
			es = append(es, e)
		}
	}
	switch {
	case p.Level == LevelRoot:
		add(Entry{Name: "manifest.json", Type: EntryManifest, Cookie: cookieManifest})
		for r := range l.WorldSize {
			add(Entry{Name: RankName(r), Place: Place{Level: LevelRank, Rank: r}, Cookie: uint64(cookieRank + r)})
		}
	case p.Rank >= l.WorldSize || p.Group >= len(l.Groups):
		return nil, syscall.ENOENT
	case p.Level == LevelRank:
		for g := range l.Groups {
			add(Entry{Name: l.Groups[g].Name, Place: Place{LevelGroup, p.Rank, g}, Cookie: uint64(1 + g)})
		}
	case p.Level == LevelGroup:
		g := &l.Groups[p.Group]
		for i := int(min(after, uint64(len(g.Positions)))); i < len(g.Positions) && len(es) < max; i++ {
			add(Entry{Name: index.PositionName(g.Positions[i]), Type: EntryPage, Place: p, Slot: l.Slot(p.Rank, p.Group, i), Cookie: uint64(1 + i)})
		}
	default:
		return nil, syscall.ENOENT
	}
	return es, nil
}
