package index

import (
	"crypto/sha256"
	"math"
	"strings"
)

const (
	// MaxDocumentBytes bounds an identity document, which stays in memory.
	MaxDocumentBytes = 1 << 20
	// MaxWorldSize bounds the ranks of an engine.
	MaxWorldSize = 1024
)

// Document is a valid identity document: everything that decides what page
// bytes mean.
type Document struct {
	Digest        Digest // SHA-256 of Doc
	Doc           []byte // canonical JSON, not to be changed
	WorldSize     int    // ranks, 1..MaxWorldSize
	SchemaVersion int64
}

// Name returns the name of the identity's directory, 40 hex digits.
func (d *Document) Name() string { return d.Digest.Short() }

// ParseDocument reads an identity document. The error is an InvalidError.
//
// Fields that it does not know are kept and authenticated. Hex digits of a
// revision may be of either case, and are authenticated as written.
func ParseDocument(raw []byte) (*Document, error) {
	if len(raw) > MaxDocumentBytes {
		return nil, invalidf("the identity document has more than %d bytes", MaxDocumentBytes)
	}
	doc, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	f, err := newFields("", doc)
	if err != nil {
		return nil, err
	}
	d := &Document{Digest: sha256.Sum256(doc), Doc: doc}
	if d.SchemaVersion, err = f.integer("schema_version", math.MinInt64, math.MaxInt64); err != nil {
		return nil, err
	}
	if err := checkRevisions(f); err != nil {
		return nil, err
	}
	layout, err := f.nested("layout")
	if err != nil {
		return nil, err
	}
	if len(layout.object) == 0 {
		return nil, invalidf("layout must not be empty: it says what the pages' bytes mean")
	}
	parallel, err := f.nested("parallel")
	if err != nil {
		return nil, err
	}
	worldSize, err := parallel.integer("world_size", 1, MaxWorldSize)
	if err != nil {
		return nil, err
	}
	d.WorldSize = int(worldSize)
	return d, nil
}

// checkRevisions refuses anything that can change under the same name.
func checkRevisions(f fields) error {
	for _, key := range []string{"target_revision", "draft_revision", "source_revision", "adapter_revision"} {
		if key == "adapter_revision" && !f.has(key) {
			continue
		}
		v, err := f.raw(key)
		if err != nil {
			return err
		}
		s, ok := rawString(v)
		if ok && (isRevision(s) || s == "" && key == "draft_revision") {
			continue
		}
		return invalidf("%s must be a digest of 40 or 64 hex digits, with or without sha256: or git: before it, not %s; a branch, a tag or a path can change under the same name",
			f.at(key), cutValue(v))
	}
	return nil
}

// isRevision reports whether s names content: a digest, perhaps prefixed.
func isRevision(s string) bool {
	for _, prefix := range []string{"sha256:", "git:"} {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			return isRevisionDigest(rest)
		}
	}
	return isRevisionDigest(s)
}
