package staging

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"ckptfs/evict"
	"ckptfs/index"
)

// Accept checks manifest.json: it is called when a writer closes or syncs it.
// Success makes the plan, links the pages that exist and reserves RAM for the
// others. EINVAL with the reason in the `error` file; ENOSPC if the bytes can't
// be had, EDQUOT if a quota forbids them: then manifest.json is gone too.
// Repeating it changes nothing.
func (d *Draft) Accept(ctx context.Context) error {
	d.accept.Lock()
	defer d.accept.Unlock()
	if d.Accepted() {
		return nil
	}
	err := d.tryAccept(ctx)
	if err == nil {
		d.setError("")
		return nil
	}
	d.setError(err.Error())
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = errors.Join(err, d.RemoveFile(EntryManifest, 0))
	}
	return err
}

func (d *Draft) tryAccept(ctx context.Context) error {
	c, err := d.readManifest()
	if err != nil {
		return err
	}
	slots := make([]int, c.layout.Total())
	for i := range slots {
		slots[i] = i
	}
	found, err := d.m.findPages(c, slots)
	if err != nil {
		return err
	}
	state := make([]slot, len(slots))
	for _, f := range found {
		state[f.Slot].page = PageRef{f.ID, f.Page}
	}
	release := func() {
		refs := make([]PageRef, 0, len(found))
		for _, f := range found {
			refs = append(refs, PageRef{f.ID, f.Page})
		}
		d.m.unref(refs)
	}
	unclaim, err := d.claimQuota(c, state)
	if err != nil {
		release()
		return err
	}
	defer unclaim()
	var need int64
	for i := range state {
		if state[i].page.ID == 0 {
			_, g, _ := c.layout.At(i)
			need += evict.Charge(c.layout.Groups[g].PageBytes)
			state[i].reserved = true
		}
	}
	if need > 0 {
		if err := d.m.reserve(ctx, need); err != nil {
			release()
			return refuse(syscall.ENOSPC, "%d bytes for the missing pages: %v", need, err)
		}
	}
	if err := d.commitAccept(c, state, found); err != nil {
		release()
		d.m.Budget.Unreserve(need)
		return err
	}
	d.m.linked(found)
	return nil
}

// readManifest reads, checks and derives.
func (d *Draft) readManifest() (*content, error) {
	raw, err := os.ReadFile(d.FilePath(EntryManifest))
	if err != nil {
		return nil, err
	}
	m, err := index.ParseManifest(raw)
	if err != nil {
		return nil, err
	}
	c := &content{manifest: m, layout: m.Layout(d.doc.WorldSize)}
	if err := d.m.checkSize(c.layout); err != nil {
		return nil, err
	}
	digest := d.doc.Digest
	if m.Published != nil {
		if c.derived, err = m.DeriveRestored(digest, d.doc.WorldSize); err == nil {
			c.derived.InModel(d.Identity.Model.Name)
		}
		return c, err
	}
	tokens, err := os.ReadFile(d.FilePath(EntryTokens))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(syscall.EINVAL, "there is no tokens file: it comes before the manifest")
	case err != nil:
		return nil, err
	case len(tokens) != 4*m.NumTokens:
		return nil, refuse(syscall.EINVAL, "tokens has %d bytes; num_tokens %d wants %d", len(tokens), m.NumTokens, 4*m.NumTokens)
	}
	if c.derived, err = m.Derive(digest, d.doc.WorldSize, tokens); err != nil {
		return nil, err
	}
	c.derived.InModel(d.Identity.Model.Name)
	c.kin, err = d.kinOf(tokens, m.Media)
	return c, err
}

// checkSize refuses a generation that could never be in RAM as a whole.
func (m *Manager) checkSize(l *index.Layout) error {
	var total int64
	for g := range l.Groups {
		n := int64(len(l.Groups[g].Positions)) * int64(l.WorldSize)
		charge := evict.Charge(l.Groups[g].PageBytes)
		if n > 0 && charge > (1<<62)/n {
			total = 1 << 62
			break
		}
		if total += n * charge; total > m.Budget.Limit() {
			break
		}
	}
	if total > m.Budget.Limit() {
		return refuse(syscall.ENOSPC, "the generation is larger than the RAM tier (%d bytes)", m.Budget.Limit())
	}
	return nil
}

// commitAccept writes what was derived down and drops the tokens.
func (d *Draft) commitAccept(c *content, state []slot, found []link) error {
	if err := writeGob(filepath.Join(d.m.draftDir(d.ID), "derived"), c.derived); err != nil {
		return err
	}
	if err := writeGob(filepath.Join(d.m.draftDir(d.ID), kinFile), c.kin); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return err
	}
	if !d.mu.hasFile {
		return syscall.ENOENT
	}
	if err := d.journal.append(record{Do: doManifest}, record{Do: doLink, Links: found}); err != nil {
		return err
	}
	d.mu.content, d.mu.slots = c, state
	d.journal.allow(len(state))
	os.Remove(d.FilePath(EntryTokens))
	d.mu.hasTokens = false
	d.touchLocked()
	return nil
}

func writeGob(path string, v any) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", b.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func readGob(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return gob.NewDecoder(bytes.NewReader(raw)).Decode(v)
}
