package index

import (
	"database/sql/driver"
	"fmt"
	"time"
	"unique"
)

// maxRetired bounds how many retirements are remembered, over all identities.
// They only serve to tell a client why it found nothing.
const maxRetired = 1 << 14

// Reason is why a generation was retired, in words that continue "the longest
// match was retired at <time>: ".
type Reason string

// retirement is what is remembered of a retired generation, about 0.5 KiB.
type retirement struct {
	identity *Identity
	id       ObjectID // the generation's
	end      ending
	seq      int64
	at       int64 // nanoseconds since 1970
	reason   unique.Handle[string]
}

func (r *retirement) ending() ending  { return r.end }
func (r *retirement) sequence() int64 { return r.seq }

// String tells of it.
func (r *retirement) String() string {
	at := time.Unix(0, r.at).UTC().Format(time.RFC3339)
	return fmt.Sprintf("the longest match (%d tokens) was retired at %s: %s", r.end.tokens, at, r.reason.Value())
}

// retirements are the latest of them, by seq % maxRetired. The writer's lock
// guards it; what Find reads is in the identities.
type retirements struct {
	seq  int64 // of the next one
	ring [maxRetired]*retirement
}

// plan makes the records for gs without changing anything.
func (rs *retirements) plan(gs []*Generation, reason Reason, now int64) []*retirement {
	handle := unique.Make(string(reason))
	planned := make([]*retirement, len(gs))
	for n, g := range gs {
		planned[n] = &retirement{identity: g.Identity, id: g.ID, end: g.ending(), seq: rs.seq + int64(n), at: now, reason: handle}
	}
	return planned
}

// store writes planned records and deletes what is too old.
func (rs *retirements) store(tx *conn, planned []*retirement) error {
	for _, r := range planned {
		_, err := tx.exec("INSERT INTO retired VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			r.seq, int64(r.identity.ID), int64(r.end.tokens), r.end.prefix.Root[:], r.end.prefix.Digest[:],
			r.end.tailValue(), r.at, r.reason.Value(), int64(r.id))
		if err != nil {
			return err
		}
	}
	_, err := tx.exec("DELETE FROM retired WHERE seq < ?", rs.seq+int64(len(planned))-maxRetired)
	return err
}

// stored takes a record's place in the ring, and the one that had it out of
// its identity. The caller adds the new one to its identity.
func (rs *retirements) stored(r *retirement) {
	slot := &rs.ring[r.seq%maxRetired]
	if old := *slot; old != nil {
		old.identity.mu.Lock()
		old.identity.mu.retired.remove(old)
		old.identity.mu.Unlock()
	}
	*slot = r
	rs.seq = r.seq + 1
}

// loadRetired reads them. Those of identities that are gone are left out.
func (x *Index) loadRetired(c *conn) error {
	return c.query("SELECT * FROM retired ORDER BY seq", func(row []driver.Value) error {
		r := &retirement{
			seq:      row[0].(int64),
			identity: x.mu.identityByID[ObjectID(row[1].(int64))],
			end:      ending{tokens: int(row[2].(int64))},
			at:       row[6].(int64),
			reason:   unique.Make(row[7].(string)),
			id:       ObjectID(row[8].(int64)),
		}
		x.retirements.seq = r.seq + 1
		if r.identity == nil {
			return nil
		}
		r.end.prefix.StartTokens = startTokens(r.end.tokens)
		copy(r.end.prefix.Root[:], row[3].([]byte))
		copy(r.end.prefix.Digest[:], row[4].([]byte))
		r.end.tail, r.end.hasTail = tailOf(row[5])
		x.retirements.stored(r)
		r.identity.mu.retired.add(r)
		return nil
	})
}
