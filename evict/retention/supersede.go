package retention

// Member is a generation as the rules of supersession see it.
type Member struct {
	ID      ID
	Request uint64
	Kind    Kind
	Tokens  int
}

// Supersession is the outcome of a publication.
type Supersession struct {
	Parent     ID   // becomes a fork point, and stays current; 0 if none
	Superseded []ID // in the order given; may repeat what already was
}

// Supersede applies contract section 8 to the publication of p.
//
// prefixes are the published generations of the identity that are exact proper
// prefixes of p, in any order. sameRequest are published generations that
// share their request with one of prefixes; those that are prefixes themselves,
// or belong to a request that no ancestor has, are ignored, so a caller may
// pass more than it must. The store calls this in the transaction that
// publishes; it costs O(prefixes + sameRequest).
func Supersede(p Member, prefixes, sameRequest []Member) Supersession {
	var out Supersession
	if p.Kind != Prompt {
		return out
	}
	requests := make(map[uint64]bool, len(prefixes))
	isPrefix := make(map[ID]bool, len(prefixes))
	var parent Member
	for _, a := range prefixes {
		isPrefix[a.ID] = true
		if a.Request == p.Request {
			continue
		}
		requests[a.Request] = true
		if a.Tokens > parent.Tokens || a.Tokens == parent.Tokens && a.ID > parent.ID {
			parent = a // among equals the one published last, as lookup does
		}
	}
	out.Parent = parent.ID
	for _, a := range prefixes {
		if a.Request != p.Request && a.ID != parent.ID && a.Kind != Instruction {
			out.Superseded = append(out.Superseded, a.ID)
		}
	}
	for _, s := range sameRequest {
		passed := requests[s.Request] && !isPrefix[s.ID] && s.ID != p.ID && s.Tokens < p.Tokens
		if passed && s.Kind != Instruction {
			out.Superseded = append(out.Superseded, s.ID)
		}
	}
	return out
}
