package index

import (
	"database/sql/driver"
	"fmt"
	"sync"
)

// maxHistory bounds how many events are kept, over all generations; maxNotes how
// many wait to be written.
const (
	maxHistory = 1 << 16
	maxNotes   = 1 << 12
)

// Event is something that happened to a generation.
type Event struct {
	At   int64  // nanoseconds since 1970
	Text string // what, in words
}

// note is an event with the generation's place.
type note struct {
	identity   ObjectID
	generation string // its name
	Event
}

func noteOf(g *Generation, at int64, text string) note {
	return note{g.Identity.ID, g.Name, Event{at, text}}
}

// notes wait for FlushTouched. The lock is a leaf.
type notes struct {
	mu   sync.Mutex
	list []note
}

// Note remembers an event of a generation. It does no I/O: FlushTouched writes
// it, or Close; when too many wait it is left out.
func (x *Index) Note(g *Generation, at int64, text string) {
	x.notes.mu.Lock()
	defer x.notes.mu.Unlock()
	if len(x.notes.list) < maxNotes {
		x.notes.list = append(x.notes.list, noteOf(g, at, text))
	}
}

func (n *notes) take() []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

// giveBack is for notes that could not be written.
func (n *notes) giveBack(list []note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(list, n.list...)
	n.list = n.list[:min(len(n.list), maxNotes)]
}

// storeHistory writes events, in order, and deletes what is too old.
func storeHistory(tx *conn, list []note) error {
	if len(list) == 0 {
		return nil
	}
	for _, n := range list {
		if _, err := tx.exec("INSERT INTO history VALUES (NULL, ?, ?, ?, ?)", int64(n.identity), n.generation, n.At, n.Text); err != nil {
			return err
		}
	}
	_, err := tx.exec("DELETE FROM history WHERE seq <= (SELECT max(seq) FROM history) - ?", int64(maxHistory))
	return err
}

// flushNotes writes what Note remembered.
func (x *Index) flushNotes() error {
	list := x.notes.take()
	if len(list) == 0 {
		return nil
	}
	err := x.noteDown("writing history", func(tx *conn) error { return storeHistory(tx, list) })
	if err != nil {
		x.notes.giveBack(list)
	}
	return err
}

// History returns what is remembered of a generation, published or not, by its
// name: the latest max events, in order.
func (x *Index) History(i *Identity, generation string, max int) ([]Event, error) {
	var events []Event
	err := x.readers.read(func(db *conn) error {
		return db.query(`SELECT at, text FROM (SELECT seq, at, text FROM history
			WHERE generation = ? AND identity = ? ORDER BY seq DESC LIMIT ?) ORDER BY seq`,
			func(row []driver.Value) error {
				text, _ := row[1].(string)
				events = append(events, Event{row[0].(int64), text})
				return nil
			}, generation, int64(i.ID), int64(max))
	})
	return events, err
}

// retiredText is the event of a retirement.
func retiredText(why string) string { return "retired: " + why }

// RetiredName finds the name of a generation that was retired, "" if that is not
// remembered any more.
func (x *Index) RetiredName(i *Identity, lead RetiredLead) (name string, err error) {
	tokens := fmt.Sprintf("%08d", lead.NumTokens)
	err = x.readers.read(func(db *conn) error {
		return db.query(`SELECT generation FROM history WHERE generation > ? AND generation < ?
			AND identity = ? AND at = ? AND text = ? ORDER BY seq DESC LIMIT 1`,
			func(row []driver.Value) error {
				name, _ = row[0].(string)
				return nil
			}, tokens+"-", tokens+".", int64(i.ID), lead.At, retiredText(string(lead.Reason)))
	})
	return name, err
}

// events are what a publication adds to the history.
func (k *kinship) events(g *Generation) []note {
	list := []note{noteOf(g, g.Published, "published by request "+g.Request)}
	for _, c := range k.changes {
		text := "superseded by " + g.Name
		if c.State == Fork {
			text = "a fork point: " + g.Name + " continues it"
		}
		list = append(list, noteOf(c.Generation, g.Published, text))
	}
	return list
}
