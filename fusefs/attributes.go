package fusefs

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// attributeNames are the extended attributes, without their prefix.
var attributeNames = []string{
	"state", "tier", "tokens", "kind", "key", "published", "superseded_by", "leases", "bytes", // generations and pages
	"pin", "quota",
}

func isAttribute(name string) bool { return slices.Contains(attributeNames, name) }

// attribute gives the value of an extended attribute of a node. ENODATA if it
// has none.
func (fs *FS) attribute(n nodeID, name string) (string, error) {
	generation, history := strings.CutPrefix(name, "history.")
	switch {
	case history && n.kind() == kindIdentity:
		return fs.history(n, generation)
	case !isAttribute(name):
		return "", syscall.ENODATA
	case name == "pin" || name == "quota":
		return fs.setting(n, name)
	case n.kind() == kindGeneration:
		if g := fs.idx.GenerationByID(n.generation()); g != nil {
			return fs.generationAttribute(g, name)
		}
	case n.kind() == kindPage:
		if p, err := fs.idx.Page(n.page()); err == nil && p.Links() > 0 {
			return fs.pageAttribute(p, name)
		}
	}
	return "", syscall.ENODATA
}

// maxEvents bounds what is told of a generation: an attribute is at most 64 KiB.
const maxEvents = 256

// event is one line of a generation's history.
type event struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// history tells, as JSON, what is remembered of a generation of the identity,
// whether it is still published or not.
func (fs *FS) history(n nodeID, generation string) (string, error) {
	i, err := fs.identity(n)
	if err != nil {
		return "", err
	}
	if err := fs.idx.FlushTouched(); err != nil {
		return "", err
	}
	list, err := fs.idx.History(i, generation, maxEvents)
	if err != nil || len(list) == 0 {
		return "", errors.Join(err, syscall.ENODATA)
	}
	events := make([]event, len(list))
	for n, e := range list {
		events[n] = event{time.Unix(0, e.At).UTC(), e.Text}
	}
	b, err := json.Marshal(events)
	return string(b), err
}

func (fs *FS) setting(n nodeID, name string) (string, error) {
	o, _, err := fs.settable(n)
	if err != nil {
		return "", syscall.ENODATA
	}
	switch q := o.Quota(); {
	case name == "pin" && o.PinnedItself():
		return "1", nil
	case name == "quota" && q > 0:
		return strconv.FormatInt(q, 10), nil
	}
	return "", syscall.ENODATA
}

func (fs *FS) generationAttribute(g *index.Generation, name string) (string, error) {
	switch name {
	case "tier":
		return fs.generationTier(g)
	case "key":
		return g.Digest.Hex(), nil
	case "leases":
		return fs.generationLeases(g)
	case "bytes":
		return strconv.FormatInt(g.PageBytes, 10), nil
	}
	return fs.lineage(g, name)
}

// lineage is what a page shares with the generation that keeps it.
func (fs *FS) lineage(g *index.Generation, name string) (string, error) {
	switch name {
	case "state":
		return g.State().String(), nil
	case "tokens":
		return strconv.Itoa(g.NumTokens), nil
	case "kind":
		return string(g.Kind), nil
	case "published":
		return time.Unix(0, g.Published).UTC().Format(time.RFC3339Nano), nil
	case "superseded_by":
		if by := fs.idx.GenerationByID(g.SupersededBy()); by != nil {
			return by.Name, nil
		}
	}
	return "", syscall.ENODATA
}

func (fs *FS) pageAttribute(p *index.Page, name string) (string, error) {
	switch name {
	case "tier":
		return tierName(fs.tiersOf(p))
	case "leases":
		return strconv.Itoa(len(fs.handles.of(pageNode(p.ID)))), nil
	case "bytes":
		return strconv.FormatInt(p.Bytes, 10), nil
	}
	g, err := fs.keeper(p.ID)
	if err != nil {
		return "", err
	}
	if name == "key" {
		return fs.contentKey(g, p.ID)
	}
	return fs.lineage(g, name)
}

// contentKey computes the content key of a page that the generation has; the
// index knows the page by its page key.
func (fs *FS) contentKey(g *index.Generation, id pages.ID) (string, error) {
	c, err := fs.idx.Contents(g)
	if err != nil {
		return "", err
	}
	m, err := index.ParseManifest(c.Manifest)
	if err != nil {
		return "", err
	}
	doc := g.Identity.Document()
	if doc == nil {
		return "", syscall.ENODATA // all of it is being removed
	}
	d, err := m.DeriveRestored(doc.Digest, c.Layout.WorldSize)
	slot := slices.Index(c.Pages, id)
	if err != nil || slot < 0 {
		return "", errors.Join(err, syscall.ENODATA)
	}
	return index.Digest(d.Keys[slot]).Hex(), nil
}

// keeper is the generation for whose sake a page is kept: the latest current one,
// or the latest if there is none. A page is superseded when no current generation
// needs it. ENODATA if none has it.
func (fs *FS) keeper(id pages.ID) (*index.Generation, error) {
	var found *index.Generation
	err := fs.idx.EachLinking(id, func(g *index.Generation) bool {
		current := !g.State().Superseded()
		if current || found == nil {
			found = g
		}
		return !current
	})
	if err == nil && found == nil {
		err = syscall.ENODATA
	}
	return found, err
}

// tiersOf tells which tiers have a copy of the page.
func (fs *FS) tiersOf(p *index.Page) (ram, disk bool) {
	_, err := fs.ram.Stat(p.ID)
	return err == nil, p.Disk() > 0
}

func tierName(ram, disk bool) (string, error) {
	switch {
	case ram && disk:
		return "both", nil
	case disk:
		return "disk", nil
	case ram:
		return "ram", nil
	}
	return "", syscall.ENODATA
}

// generationTier tells which tiers have any of the generation's pages.
func (fs *FS) generationTier(g *index.Generation) (string, error) {
	c, err := fs.idx.Contents(g)
	if err != nil {
		return "", err
	}
	var ram, disk bool
	for ids := range slices.Chunk(c.Pages, listBatch) {
		rows, err := fs.idx.Pages(ids)
		if err != nil {
			return "", err
		}
		for _, p := range rows {
			if p == nil {
				continue // retired in this instant
			}
			r, d := fs.tiersOf(p)
			if ram, disk = ram || r, disk || d; ram && disk {
				return tierName(ram, disk)
			}
		}
	}
	return tierName(ram, disk)
}

// generationLeases counts the open handles that keep a generation's pages from
// being evicted: those on the whole, and those on single pages.
func (fs *FS) generationLeases(g *index.Generation) (string, error) {
	c, err := fs.idx.Contents(g)
	if err != nil {
		return "", err
	}
	its := make(map[pages.ID]bool, len(c.Pages))
	for _, id := range c.Pages {
		its[id] = true
	}
	n := fs.leases.count(g.ID)
	fs.handles.each(func(h *handle) {
		if h.node.kind() == kindPage && its[h.node.page()] {
			n++
		}
	})
	return strconv.Itoa(n), nil
}
