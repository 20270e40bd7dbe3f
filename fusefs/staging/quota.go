package staging

import (
	"slices"
	"sync"
	"syscall"

	"ckptfs/index"
	"ckptfs/pages"
)

// quotas let one manifest at a time be checked against the bounds on bytes that
// were set for its identity and its model. The lock is taken after a Draft's
// accept lock and before anything else; evicting is done under it.
type quotas struct {
	sync.Mutex
	claims map[*Draft]claim
}

// claim is a manifest that fits, whose draft does not have it yet: it still
// waits for RAM.
type claim struct {
	content *content
	slots   []slot
}

// bound is a quota and what it is about.
type bound struct {
	what       string
	quotaBytes int64
	identities []*index.Identity
}

// bounds lists the quotas that apply to an identity.
func bounds(i *index.Identity) []bound {
	var bs []bound
	if q := i.Quota(); q > 0 {
		bs = append(bs, bound{"identity", q, []*index.Identity{i}})
	}
	if q := i.Model.Quota(); q > 0 {
		bs = append(bs, bound{"model", q, i.Model.Identities(0, 1<<30)})
	}
	return bs
}

// claimQuota makes sure that the manifest's pages fit into the quotas, and
// retires what is coldest in the same identity or model until they do. EDQUOT
// if they don't. What is claimed counts until unclaim, which the caller calls
// when the draft has the manifest, or never will.
func (d *Draft) claimQuota(c *content, slots []slot) (unclaim func(), err error) {
	bs := bounds(d.Identity)
	if len(bs) == 0 {
		return func() {}, nil
	}
	q := &d.m.quotas
	q.Lock()
	defer q.Unlock()
	if q.claims == nil {
		q.claims = map[*Draft]claim{}
	}
	q.claims[d] = claim{c, slices.Clone(slots)}
	for _, b := range bs {
		if err := d.m.fit(b, c.layout.Bytes()); err != nil {
			delete(q.claims, d)
			return nil, err
		}
	}
	return func() {
		q.Lock()
		delete(q.claims, d)
		q.Unlock()
	}, nil
}

// fit makes one quota hold, all claims included. The lock of quotas is held.
func (m *Manager) fit(b bound, generationBytes int64) error {
	if generationBytes > b.quotaBytes {
		return refuse(syscall.EDQUOT, "the generation has %d bytes, more than the %s's quota of %d", generationBytes, b.what, b.quotaBytes)
	}
	used, err := m.boundBytes(b)
	if err != nil || used <= b.quotaBytes {
		return err
	}
	m.Evict(b.identities, func() bool {
		used, err = m.boundBytes(b)
		return err != nil || used <= b.quotaBytes
	})
	if err == nil && used > b.quotaBytes {
		err = refuse(syscall.EDQUOT, "the %s's quota is %d bytes, and %d would be in use: nothing more of it can be evicted", b.what, b.quotaBytes, used)
	}
	return err
}

// boundBytes counts what a quota is about: every page that a generation links,
// or that a staging has, wants or keeps, once.
func (m *Manager) boundBytes(b bound) (int64, error) {
	var sum int64
	pending := map[pages.Key]int64{}
	for _, i := range b.identities {
		n, err := m.Index.UsedBytes(i)
		if err != nil {
			return 0, err
		}
		sum += n
		for _, d := range m.OfIdentity(i.ID) {
			d.mu.Lock()
			c, slots := d.mu.content, slices.Clone(d.mu.slots)
			ghost := d.mu.ghost
			d.mu.Unlock()
			if c == nil {
				if claim, ok := m.quotas.claims[d]; ok {
					c, slots = claim.content, claim.slots
				}
			}
			if c != nil && !ghost { // what rm takes apart will not come back
				m.addPending(pending, c, slots)
			}
		}
	}
	for _, n := range pending {
		sum += n
	}
	return sum, nil
}

// addPending collects the pages of a staging that no generation links.
func (m *Manager) addPending(pending map[pages.Key]int64, c *content, slots []slot) {
	for i := range slots {
		if m.published(slots[i].page) {
			continue
		}
		_, g, _ := c.layout.At(i)
		pending[c.derived.Keys[i]] = c.layout.Groups[g].PageBytes
	}
}

// published reports whether a published generation has the page.
func (m *Manager) published(ref PageRef) bool {
	if ref.ID == 0 || ref.Staged() {
		return false
	}
	p, err := m.Index.Page(ref.ID)
	return err == nil && p.Links() > 0
}
