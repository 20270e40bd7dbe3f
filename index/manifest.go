package index

import (
	"math"
)

// Limits of the format.
const (
	MaxManifestBytes = 16 << 20 // of a manifest as an engine writes it
	MaxGroups        = 4096     // of a manifest
	MaxPositions     = 1 << 20  // of a group
	MaxPageBytes     = 1 << 30

	// MaxPublishedBytes bounds a published manifest, which has a digest for
	// each position of an attention group, and so what a restore can write.
	MaxPublishedBytes = 256 << 20

	maxRequestBytes = 128
	maxNonceBytes   = 128
	maxNameBytes    = 255
)

// Kind is what part of a conversation a generation ends with.
type Kind string

// The kinds of generation.
const (
	KindInstruction Kind = "instruction"
	KindPrompt      Kind = "prompt"
	KindResponse    Kind = "response"
)

// Role is what a group's pages depend on, and so what their keys are made of.
type Role string

// The roles of a group.
const (
	RoleAttention Role = "attention"
	RoleRecurrent Role = "recurrent"
	RoleAuxiliary Role = "auxiliary"
)

// Group is a page group: in each rank a directory of pages of one size.
type Group struct {
	Name        string
	Role        Role
	PageTokens  int      // tokens of a page; 0 if the role is not attention
	PageBytes   int64    // bytes of a page
	Positions   []uint32 // strictly increasing
	PageDigests []Digest // D(n) of each position; nil unless attention and published
}

// Manifest is a valid manifest. It is not changed once parsed.
type Manifest struct {
	SchemaVersion  int // 1: pages are not shared; 2: they are
	Kind           Kind
	Request        string
	NumTokens      int
	DraftPrefixLen uint32 // tokens; 0 if the field is absent
	Nonce          string // of schema 1
	Groups         []Group
	Media          []Media

	// Published is nil unless the manifest carries the fields that
	// publication adds: it is then one that is restored.
	Published *PublishedFields

	written   rawObject   // without the fields that publication adds
	rawGroups []rawObject // page_groups of written, without page_digests
}

// ParseManifest reads a manifest: one that an engine wrote, or one that has
// been published. The error is an InvalidError.
//
// A field that the format does not name is kept, and is part of the
// generation's digest. The fields that publication adds must be there all or
// none; what can be checked about them without the identity is checked here,
// the rest by Derive and DeriveRestored.
func ParseManifest(raw []byte) (*Manifest, error) {
	if len(raw) > MaxPublishedBytes {
		return nil, invalidf("the manifest has more than %d bytes", MaxPublishedBytes)
	}
	canonical, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	f, err := newFields("", canonical)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	for _, parse := range []func(fields) error{m.parseHead, m.parseGroups, m.parseMedia, m.parsePublished} {
		if err := parse(f); err != nil {
			return nil, err
		}
	}
	m.keepWritten(f.object)
	if err := m.checkSize(len(raw)); err != nil {
		return nil, err
	}
	return m, nil
}

// parseHead reads the fields that stand alone.
func (m *Manifest) parseHead(f fields) error {
	schema, err := f.integer("schema_version", 1, 2)
	if err != nil {
		return err
	}
	kind, err := f.oneOf("kind", string(KindInstruction), string(KindPrompt), string(KindResponse))
	if err != nil {
		return err
	}
	if m.Request, err = f.text("request", 1, maxRequestBytes); err != nil {
		return err
	}
	tokens, err := f.integer("num_tokens", 1, MaxTokens)
	if err != nil {
		return err
	}
	var draft int64
	if f.has("draft_prefix_len") {
		if draft, err = f.integer("draft_prefix_len", 0, math.MaxUint32); err != nil {
			return err
		}
	}
	if schema == 1 {
		if m.Nonce, err = f.text("nonce", 1, maxNonceBytes); err != nil {
			return err
		}
	}
	m.SchemaVersion, m.Kind, m.NumTokens, m.DraftPrefixLen = int(schema), Kind(kind), int(tokens), uint32(draft)
	return nil
}

// parseMedia reads the items of a manifest, which may have none.
func (m *Manifest) parseMedia(f fields) (err error) {
	m.Media, err = parseMedia(f, m.NumTokens)
	return err
}

// parseMedia reads the field media of a manifest or a lookup: items that
// start at increasing tokens below numTokens.
func parseMedia(f fields, numTokens int) ([]Media, error) {
	if !f.has("media") {
		return nil, nil
	}
	var media []Media
	err := f.each("media", func(i int, element []byte) error {
		item, err := newFields(f.element("media", i), element)
		if err != nil {
			return err
		}
		at, err := item.integer("at", 0, int64(numTokens)-1)
		if err != nil {
			return err
		}
		if i > 0 && uint32(at) <= media[i-1].At {
			return invalidf("%s is %d, which does not come after %d", item.at("at"), at, media[i-1].At)
		}
		v, err := item.raw("digest")
		if err != nil {
			return err
		}
		digest, _ := rawString(v)
		if !isRevisionDigest(digest) {
			return invalidf("%s must be 40 or 64 hex digits, not %s", item.at("digest"), cutValue(v))
		}
		media = append(media, Media{At: uint32(at), Digest: digest})
		return nil
	})
	return media, err
}

// checkSize applies the limits on the written and on the published form;
// given is the size of what was parsed.
func (m *Manifest) checkSize(given int) error {
	written := given
	if m.Published != nil {
		written = m.writtenBytes()
	}
	if written > MaxManifestBytes {
		return invalidf("the manifest has %d bytes, more than %d", written, MaxManifestBytes)
	}
	if most := m.publishedBytesBound(); most > MaxPublishedBytes {
		return invalidf("with a digest for each attention page the published manifest would have about %d bytes, more than %d", most, MaxPublishedBytes)
	}
	return nil
}
