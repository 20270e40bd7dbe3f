package index

import (
	"database/sql/driver"
	"fmt"
	"slices"

	"ckptfs/pages"
)

// Retired is what Retire did.
type Retired struct {
	Generations []*Generation // not published any more; those that were retired before are not among them
	Dropped     []*Page       // had no link left, their rows are gone
	Changed     []*Page       // are still there, with other links
}

// Retire takes generations out of the index, in one transaction: after it they
// are in no listing, and no lookup finds them. Their pages lose the links;
// pages at no link that keep does not want are dropped. A nil keep wants none.
// For Find's reasons it is remembered when and why. The identities' mtimes
// become now (nanoseconds since 1970).
//
// The time it takes is that of the pages, and other changes wait: a caller with
// very many generations retires them in parts.
//
// keep is called within the transaction, so it must not call the index, nor
// wait for anybody who does.
func (x *Index) Retire(gs []*Generation, reason Reason, now int64, op Op, keep func(pages.ID) bool) (Retired, error) {
	return x.retire(gs, reason, now, op, keep, false)
}

// RetireUnpinned is Retire for those that are not pinned when it is done.
func (x *Index) RetireUnpinned(gs []*Generation, reason Reason, now int64, keep func(pages.ID) bool) (Retired, error) {
	return x.retire(gs, reason, now, 0, keep, true)
}

func (x *Index) retire(gs []*Generation, reason Reason, now int64, op Op, keep func(pages.ID) bool, heedPins bool) (Retired, error) {
	var done Retired
	var changed, dropped []PageRow
	var records []*retirement
	var released released
	noted := x.notes.take() // what led to it comes before it
	err := x.free("retiring", op, func(tx *conn) (err error) {
		done, released.owner = Retired{}, nil // it may be the second try
		counts := make(map[pages.ID]int32)
		released.counted = x.usage.counted()
		seen := make(map[*Generation]bool, len(gs))
		for _, g := range gs {
			if g.Retired() || seen[g] || heedPins && g.Pinned() {
				continue
			}
			seen[g] = true
			done.Generations = append(done.Generations, g)
			if err := deleteGeneration(tx, g, now, counts, &released); err != nil {
				return fmt.Errorf("%s: %w", g.Name, err)
			}
		}
		records = x.retirements.plan(done.Generations, reason, now)
		if err := x.retirements.store(tx, records); err != nil {
			return err
		}
		if err := storeHistory(tx, slices.Concat(noted, retirementNotes(records, done.Generations))); err != nil {
			return err
		}
		changed, dropped, err = releasePages(tx, counts, keep)
		return err
	}, func() {
		for n, g := range done.Generations {
			x.retirements.stored(records[n])
			x.removeGeneration(g, records[n])
			x.contents.drop(g.ID)
			x.touched.forget(g)
			x.forget(g)
			g.Identity.touch(now)
		}
		for n := range changed {
			done.Changed = append(done.Changed, x.pages.changed(&changed[n]))
		}
		done.Dropped = x.dropped(dropped)
		x.usage.released(&released, changed, dropped)
	})
	if err != nil {
		x.notes.giveBack(noted)
		return Retired{}, err
	}
	return done, nil
}

func retirementNotes(records []*retirement, gs []*Generation) []note {
	list := make([]note, len(gs))
	for n, g := range gs {
		list[n] = noteOf(g, records[n].at, retiredText(records[n].reason.Value()))
	}
	return list
}

// deleteGeneration deletes the rows of a generation and counts its links.
func deleteGeneration(tx *conn, g *Generation, now int64, counts map[pages.ID]int32, released *released) error {
	row, err := readContents(tx, g.ID)
	if err != nil {
		return err
	}
	ids, err := decodePageList(row.pages)
	if err != nil {
		return err
	}
	for _, id := range ids {
		counts[id]++
	}
	released.note(g, ids)
	if err := deleteSettings(tx, g); err != nil {
		return err
	}
	for _, text := range []string{"DELETE FROM contents WHERE generation = ?", "DELETE FROM generations WHERE id = ?"} {
		if _, err := tx.exec(text, int64(g.ID)); err != nil {
			return err
		}
	}
	_, err = tx.exec("UPDATE identities SET mtime = ? WHERE id = ?", now, int64(g.Identity.ID))
	return err
}

// releasePages takes links away, and deletes the rows that have none left and
// that keep does not want. It returns the rows that changed, as they are now,
// and those that were deleted.
func releasePages(tx *conn, counts map[pages.ID]int32, keep func(pages.ID) bool) (changed, dropped []PageRow, err error) {
	var unwanted []PageRow
	err = addLinks(tx, counts, -1, pageColumns, func(row []driver.Value) error {
		r, err := pageRowOf(row)
		if err != nil {
			return err
		}
		if r.Links == 0 && (keep == nil || !keep(r.ID)) {
			unwanted = append(unwanted, r)
		} else {
			changed = append(changed, r)
		}
		return nil
	})
	if err != nil || len(unwanted) == 0 {
		return changed, nil, err
	}
	ids := make([]pages.ID, len(unwanted))
	for n := range unwanted {
		ids[n] = unwanted[n].ID
	}
	dropped, err = deletePages(tx, ids)
	return changed, dropped, err
}

// DropPages deletes the rows of pages that have no links, and returns those.
func (x *Index) DropPages(ids []pages.ID) ([]*Page, error) {
	var rows []PageRow
	var dropped []*Page
	err := x.free("dropping pages", 0, func(tx *conn) (err error) {
		rows, err = deletePages(tx, ids)
		return err
	}, func() { dropped = x.dropped(rows) })
	return dropped, err
}

// deletePages deletes the rows of ids that have no links.
func deletePages(tx *conn, ids []pages.ID) ([]PageRow, error) {
	var rows []PageRow
	err := pageRows(tx, func(r PageRow) error { rows = append(rows, r); return nil },
		"DELETE FROM pages WHERE links = 0 AND id IN (SELECT value FROM json_each(?)) RETURNING "+pageColumns, idList(ids))
	if err != nil {
		return nil, err
	}
	return rows, storeKeys(tx, nil, rows)
}

// dropped takes deleted rows out of memory, after the commit.
func (x *Index) dropped(rows []PageRow) []*Page {
	x.keys.remove(rows)
	gone := make([]*Page, len(rows))
	for n := range rows {
		gone[n] = x.pages.dropped(&rows[n])
	}
	return gone
}
