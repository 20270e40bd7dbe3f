package fusefs

import (
	"encoding/json"
	"time"

	"ckptfs/index"
)

// lost is a retired generation that would have been a longer answer.
type lost struct {
	Generation string       `json:"generation,omitempty"` // its name, as long as that is remembered
	NumTokens  int          `json:"num_tokens"`
	Retired    time.Time    `json:"retired"`
	Reason     index.Reason `json:"reason"`
}

// explain answers a lookup that only asks: as an engine's would be answered, and
// what has been lost beyond that. It leases nothing and brings nothing to RAM,
// and what is superseded stays so.
func (fs *FS) explain(i *index.Identity, req *index.FindRequest) ([]byte, error) {
	var r findReply
	res := fs.idx.Find(i, req, func(g *index.Generation) index.Verdict {
		if _, ok := fs.readable(g, &r); !ok {
			return index.Skip
		}
		return index.Take
	})
	var beyond *lost
	if l := res.Retired; l.ID != 0 {
		beyond = &lost{NumTokens: l.NumTokens, Retired: time.Unix(0, l.At).UTC(), Reason: l.Reason}
		var err error
		if beyond.Generation, err = fs.idx.RetiredName(i, l); err != nil {
			return nil, err
		}
	}
	var reply any = struct {
		findReply
		Lost *lost `json:"lost,omitempty"`
	}{r, beyond}
	if res.Generation == nil {
		reply = struct {
			findMiss
			Lost *lost `json:"lost,omitempty"`
		}{findMiss{Reason: res.Reason}, beyond}
	}
	b, err := json.Marshal(reply)
	return append(b, '\n'), err
}
