package index

// eachBatch is how many generations are taken from an identity at a time.
const eachBatch = 1024

// EachGeneration calls f for every published generation, until f fails. Those
// that are published or retired meanwhile may be missed. No lock is held while f
// runs.
func (x *Index) EachGeneration(f func(*Generation) error) error {
	for am := ObjectID(0); ; {
		ms := x.Models(am, eachBatch)
		for _, m := range ms {
			if err := m.eachGeneration(f); err != nil {
				return err
			}
			am = m.ID
		}
		if len(ms) < eachBatch {
			return nil
		}
	}
}

func (m *Model) eachGeneration(f func(*Generation) error) error {
	for ai := ObjectID(0); ; {
		is := m.Identities(ai, eachBatch)
		for _, i := range is {
			for ag := ObjectID(0); ; {
				gs := i.Generations(ag, eachBatch)
				for _, g := range gs {
					if err := f(g); err != nil {
						return err
					}
					ag = g.ID
				}
				if len(gs) < eachBatch {
					break
				}
			}
			ai = i.ID
		}
		if len(is) < eachBatch {
			return nil
		}
	}
}
