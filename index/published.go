package index

import (
	"bytes"
	"slices"
	"strings"
)

// The fields that publication adds. They are no part of the generation's
// digest, being made from it.
const (
	fieldGeneration  = "generation"
	fieldIdentity    = "identity"
	fieldWorldSize   = "world_size"
	fieldPrefix      = "prefix"
	fieldPageDigests = "page_digests" // in each attention group
)

var addedFields = []string{fieldGeneration, fieldIdentity, fieldWorldSize, fieldPrefix}

// PublishedFields are the fields that publication adds to a manifest.
type PublishedFields struct {
	Generation string // the name of its directory
	Identity   string // 40 hex digits, or all 64
	WorldSize  int
	Prefix     Prefix
}

// parsePublished reads the fields that publication adds, if they are there,
// and the groups' page digests.
func (m *Manifest) parsePublished(f fields) error {
	missing, present := "", ""
	note := func(f fields, key string) {
		if f.has(key) {
			present = f.at(key)
		} else {
			missing = f.at(key)
		}
	}
	for _, key := range addedFields {
		note(f, key)
	}
	for i, o := range m.rawGroups {
		gf := fields{place: f.element("page_groups", i), object: o}
		if m.Groups[i].Role == RoleAttention {
			note(gf, fieldPageDigests)
		} else if gf.has(fieldPageDigests) {
			return invalidf("%s: only attention groups have this field", gf.at(fieldPageDigests))
		}
	}
	switch {
	case present == "":
		return nil
	case missing != "":
		return invalidf("%s is there but %s is not: the fields that publication adds must be there all (a restore) or none", present, missing)
	}
	if err := m.parseAdded(f); err != nil {
		return err
	}
	for i := range m.Groups {
		if g := &m.Groups[i]; g.Role == RoleAttention {
			if err := parsePageDigests(fields{place: f.element("page_groups", i), object: m.rawGroups[i]}, g); err != nil {
				return err
			}
		}
	}
	return m.checkPageDigests()
}

// parseAdded reads the added fields of the manifest itself.
func (m *Manifest) parseAdded(f fields) error {
	p := &PublishedFields{}
	var err error
	if p.Generation, err = f.text(fieldGeneration, 1, maxNameBytes); err != nil {
		return err
	}
	if p.Identity, err = f.text(fieldIdentity, 1, 64); err != nil {
		return err
	}
	if (len(p.Identity) != 40 && len(p.Identity) != 64) || !isLowerHex(p.Identity) {
		return invalidf("%s must be 40 or 64 lower-case hex digits, not %s", fieldIdentity, quoteCut(p.Identity))
	}
	worldSize, err := f.integer(fieldWorldSize, 1, MaxWorldSize)
	if err != nil {
		return err
	}
	p.WorldSize = int(worldSize)
	prefix, err := f.nested(fieldPrefix)
	if err != nil {
		return err
	}
	if p.Prefix, err = m.parsePrefix(prefix); err != nil {
		return err
	}
	m.Published = p
	return nil
}

func (m *Manifest) parsePrefix(f fields) (p Prefix, err error) {
	if _, err = f.integer("hash_unit", HashUnit, HashUnit); err != nil {
		return p, err
	}
	want := int64(startTokens(m.NumTokens))
	if _, err = f.integer("start_tokens", want, want); err != nil {
		return p, err
	}
	p.StartTokens = int(want)
	if p.Root, err = f.digest("root"); err != nil {
		return p, err
	}
	if p.Digest, err = f.digest("digest"); err != nil {
		return p, err
	}
	if len(f.object) != 4 {
		return p, invalidf("%s has a field that publication does not write", f.place)
	}
	return p, nil
}

func parsePageDigests(f fields, g *Group) error {
	g.PageDigests = make([]Digest, 0, len(g.Positions))
	err := f.each(fieldPageDigests, func(i int, element []byte) error {
		d, ok := rawDigest(element)
		if !ok {
			return invalidf("%s must be 64 lower-case hex digits, not %s", f.element(fieldPageDigests, i), cutValue(element))
		}
		if i == len(g.Positions) {
			return invalidf("%s has more digests than there are positions", f.at(fieldPageDigests))
		}
		g.PageDigests = append(g.PageDigests, d)
		return nil
	})
	if err == nil && len(g.PageDigests) < len(g.Positions) {
		return invalidf("%s has %d digests for %d positions", f.at(fieldPageDigests), len(g.PageDigests), len(g.Positions))
	}
	return err
}

// checkPageDigests checks that one prefix has one digest wherever it stands:
// the whole prefix's, the root's, and those of pages of different groups.
func (m *Manifest) checkPageDigests() error {
	want := newBoundaries(m.NumTokens)
	for i := range m.Groups {
		for p := range m.Groups[i].PageDigests {
			want.mark(m.boundary(&m.Groups[i], p))
		}
	}
	prefix := m.Published.Prefix
	want.mark(m.NumTokens)
	want.mark(prefix.StartTokens) // may be 0, which no page has
	want.seal()
	*want.slot(m.NumTokens) = prefix.Digest
	*want.slot(prefix.StartTokens) = prefix.Root
	for i := range m.Groups {
		g := &m.Groups[i]
		for p, d := range g.PageDigests {
			n := m.boundary(g, p)
			known := want.slot(n)
			if *known == (Digest{}) {
				*known = d
			}
			if *known != d {
				return invalidf("page_groups[%d].%s[%d] is not the digest of the first %d tokens that stands elsewhere in the manifest", i, fieldPageDigests, p, n)
			}
		}
	}
	return nil
}

// keepWritten keeps what the engine wrote: everything but the added fields.
// It copies what it keeps if there are any, to let go of the page digests.
func (m *Manifest) keepWritten(o rawObject) {
	if m.Published == nil {
		m.written = o
		return
	}
	groups := []byte{'['}
	for i, g := range m.rawGroups {
		g = slices.DeleteFunc(g, func(f rawMember) bool {
			return f.key == fieldPageDigests && m.Groups[i].Role == RoleAttention
		})
		if i > 0 {
			groups = append(groups, ',')
		}
		groups = g.appendTo(groups)
	}
	groups = append(groups, ']')
	for _, f := range o {
		switch {
		case slices.Contains(addedFields, f.key):
			continue
		case f.key == "page_groups":
			f.value = groups
		default:
			f.value = bytes.Clone(f.value)
		}
		m.written = append(m.written, f)
	}
	eachElement(groups, func(i int, element []byte) error {
		m.rawGroups[i], _ = parseRawObject(element)
		return nil
	})
}

// writtenBytes returns the size of the manifest as written, in canonical form.
func (m *Manifest) writtenBytes() int {
	n := 2
	for _, f := range m.written {
		n += len(f.key) + len(f.value) + 4
	}
	return n
}

// publishedBytesBound returns about the size of PublishedJSON, and not less.
func (m *Manifest) publishedBytesBound() int {
	const digestBytes = 64 + len(`"",`)
	n := m.writtenBytes() + 1024
	for i := range m.Groups {
		if g := &m.Groups[i]; g.Role == RoleAttention {
			n += len(`,"page_digests":[]`) + len(g.Positions)*digestBytes
		}
	}
	return n
}

// PublishedJSON returns the manifest.json that is published: canonical JSON,
// without a newline at its end, of what was written and the fields that
// publication adds. It depends on its arguments only, and the result, parsed
// and published again, gives the same bytes.
func (m *Manifest) PublishedJSON(identity Digest, worldSize int, d *Derived) ([]byte, error) {
	if d == nil || len(d.PageDigests) != len(m.Groups) {
		return nil, invalidf("the digests are not those of this manifest")
	}
	published := slices.Clone(m.written)
	for i := range published {
		if published[i].key == "page_groups" {
			published[i].value = m.publishedGroups(d)
		}
	}
	p := d.Prefix
	prefix := rawObject{
		{"digest", rawText(p.Digest.Hex())},
		{"hash_unit", rawNumber(HashUnit)},
		{"root", rawText(p.Root.Hex())},
		{"start_tokens", rawNumber(p.StartTokens)},
	}
	published = append(published,
		rawMember{fieldGeneration, rawText(d.Name)},
		rawMember{fieldIdentity, rawText(identity.Short())},
		rawMember{fieldWorldSize, rawNumber(worldSize)},
		rawMember{fieldPrefix, prefix.appendTo(nil)},
	)
	slices.SortFunc(published, func(a, b rawMember) int { return strings.Compare(a.key, b.key) })
	return published.appendTo(make([]byte, 0, m.publishedBytesBound())), nil
}

// publishedGroups returns page_groups with the page digests.
func (m *Manifest) publishedGroups(d *Derived) []byte {
	b := append(make([]byte, 0, m.publishedBytesBound()), '[')
	for i, o := range m.rawGroups {
		if i > 0 {
			b = append(b, ',')
		}
		if m.Groups[i].Role == RoleAttention {
			at, _ := slices.BinarySearchFunc(o, fieldPageDigests, func(f rawMember, key string) int { return strings.Compare(f.key, key) })
			o = slices.Insert(slices.Clone(o), at, rawMember{fieldPageDigests, rawDigests(d.PageDigests[i])})
		}
		b = o.appendTo(b)
	}
	return append(b, ']')
}
