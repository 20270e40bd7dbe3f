package staging

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"ckptfs/evict"
	"ckptfs/index"
	"ckptfs/pages"
)

// Publish makes the staging a generation under its plan's name: all pages of
// all ranks, at one instant, or not at all.
//
// EBUSY: a page is not complete yet or has a writer. EEXIST: it is published
// already. EINVAL: another name than the plan's, no accepted manifest, or a page
// that is too long. The reason is in the `error` file.
//
// committed is called when the generation is there and the staging's journal is
// still there too, so that what it writes down is written whatever happens.
func (d *Draft) Publish(name string, op index.Op, committed func(*index.Generation)) (*index.Generation, error) {
	g, err := d.publish(name, op, committed)
	// A process that forks shares its descriptors with the child until that
	// execs; a writer that is seen is looked for again before it is believed.
	for try := 0; try < writerTries && errors.Is(err, errWriter); try++ {
		time.Sleep(writerPause)
		g, err = d.publish(name, op, committed)
	}
	var refused *Error
	if errors.As(err, &refused) && refused.Errno != syscall.EEXIST {
		d.setError(refused.Reason)
	}
	return g, err
}

const (
	writerTries = 10
	writerPause = 3 * time.Millisecond
)

// errWriter marks a refusal because of a writer.
var errWriter = errors.New("somebody writes")

func (d *Draft) publish(name string, op index.Op, committed func(*index.Generation)) (*index.Generation, error) {
	c, err := d.beginPublish(name)
	if err != nil {
		return nil, err
	}
	defer d.decide()
	fresh, ids, err := d.checkPages(c)
	if err != nil {
		return nil, err
	}
	if err := d.save(fresh); err != nil {
		return nil, err
	}
	p, err := d.publication(c, fresh, ids, op)
	if err != nil {
		return nil, err
	}
	if err := d.journal.append(record{Do: doPublish, Op: op}); err != nil {
		return nil, err
	}
	g, replaced, err := d.m.Index.Publish(p)
	if errors.Is(err, index.ErrExist) {
		return nil, refuse(syscall.EEXIST, "%s is published already", name)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.mu.kin = p.Kin
	for _, sp := range fresh {
		if _, other := replaced[sp.ID]; !other {
			d.mu.brought = append(d.mu.brought, sp.ID)
		}
	}
	d.mu.Unlock()
	committed(g)
	d.finishPublish(g, replaced)
	return g, nil
}

// save makes the new pages durable if publication is to wait for that.
func (d *Draft) save(fresh []*stagedPage) error {
	ps := make([]evict.Unpublished, len(fresh))
	for i, sp := range fresh {
		ps[i] = evict.Unpublished{ID: sp.ID, Key: sp.Key, Bytes: sp.Bytes}
	}
	return d.m.Save(context.Background(), ps)
}

// beginPublish checks the name and closes the staging for changes.
func (d *Draft) beginPublish(name string) (*content, error) {
	c, err := d.checkName(name)
	if err != nil {
		return nil, err
	}
	// What others have completed since the plan was read counts.
	if err := d.linkAbsent(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return nil, err
	}
	d.mu.publishing = true
	d.mu.decided = make(chan struct{})
	return c, nil
}

func (d *Draft) checkName(name string) (*content, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return nil, err
	}
	c := d.mu.content
	if c == nil || !d.mu.hasFile {
		reason := "there is no valid manifest"
		if d.mu.errorText != "" && c == nil {
			reason = d.mu.errorText
		}
		return nil, refuse(syscall.EINVAL, "%s", reason)
	}
	if name != c.derived.Name {
		return nil, refuse(syscall.EINVAL, "this generation's name is %s, not %s", c.derived.Name, name)
	}
	if d.Identity.Generation(name) != nil {
		return nil, refuse(syscall.EEXIST, "%s is published already", name)
	}
	return c, nil
}

// checkPages makes sure that every page is complete. fresh are the pages that
// no generation had when it looked; ids are all pages by slot.
func (d *Draft) checkPages(c *content) (fresh []*stagedPage, ids []pages.ID, err error) {
	seen := map[pages.ID]bool{}
	refs := d.pageRefs()
	ids = make([]pages.ID, len(refs))
	missing, firstMissing := 0, 0
	for slot, ref := range refs {
		if ids[slot] = ref.ID; ref.ID == 0 {
			if missing++; missing == 1 {
				firstMissing = slot
			}
			continue
		}
		if ref.staged == nil || seen[ref.ID] {
			continue
		}
		seen[ref.ID] = true
		fresh = append(fresh, ref.staged)
		state, err := d.m.inspect(ref.staged)
		if err != nil {
			return nil, nil, err
		}
		if err := d.refusal(c, slot, ref.staged, state); err != nil {
			return nil, nil, err
		}
	}
	if missing > 0 {
		return nil, nil, refuse(syscall.EBUSY, "%d pages are missing, the first is %s", missing, SlotPath(c.layout, firstMissing))
	}
	return fresh, ids, nil
}

func (d *Draft) refusal(c *content, slot int, sp *stagedPage, state pageState) error {
	path := SlotPath(c.layout, slot)
	switch state {
	case pageComplete:
		return nil
	case pageLong:
		return refuse(syscall.EINVAL, "%s is longer than its page_bytes %d", path, sp.Bytes)
	case pageWritten:
		return fmt.Errorf("%w%w", errWriter, refuse(syscall.EBUSY, "%s is still being written", path))
	case pageGone:
		return refuse(syscall.EBUSY, "%s is missing", path)
	}
	return refuse(syscall.EBUSY, "%s is not complete: it is shorter than its page_bytes %d", path, sp.Bytes)
}

func (d *Draft) publication(c *content, fresh []*stagedPage, ids []pages.ID, op index.Op) (*index.Publication, error) {
	digest := d.doc.Digest
	manifest, err := c.manifest.PublishedJSON(digest, d.doc.WorldSize, c.derived)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &index.Publication{
		ID: d.ID, Identity: d.Identity, Manifest: c.manifest, Derived: c.derived,
		Contents:  &index.Contents{Manifest: manifest, Layout: c.layout, Pages: ids},
		Attr:      d.mu.attr,
		Published: d.m.Now().UnixNano(),
		Op:        op,
		Prefixes:  c.kin,
		Supersede: supersede,
		Linked: func(ids []pages.ID) {
			for _, id := range ids {
				d.m.Live.Publish(id)
			}
		},
	}
	for sub, a := range d.mu.sub {
		p.SubAttrs = append(p.SubAttrs, index.SubAttr{Sub: sub, Attr: a})
	}
	for _, sp := range fresh {
		attr, err := d.m.attrOf(sp)
		if err != nil {
			return nil, err
		}
		p.NewPages = append(p.NewPages, index.NewPage{ID: sp.ID, Key: sp.Key, Bytes: sp.Bytes, Attr: *attr})
	}
	return p, nil
}

// attrOf is the owner and mtime of a complete staged page.
func (m *Manager) attrOf(p *stagedPage) (*index.Attr, error) {
	if a := p.sealed.Load(); a != nil && !p.attrSet.Load() {
		return a, nil
	}
	st, err := m.ram.Stat(p.ID)
	if err != nil {
		return nil, err
	}
	return publishedAttr(st), nil
}

// finishPublish lets the staging go after the commit: its pages belong to the
// generation now.
func (d *Draft) finishPublish(g *index.Generation, replaced map[pages.ID]pages.ID) {
	d.mu.Lock()
	d.mu.gone = true
	var refs []PageRef
	var relinked []pages.ID
	for i := range d.mu.slots {
		ref := d.mu.slots[i].page
		refs = append(refs, ref)
		switch {
		case ref.staged == nil:
			relinked = append(relinked, ref.ID)
		case replaced[ref.ID] == 0 || replaced[ref.ID] == ref.ID:
			ref.staged.published.Store(true)
			d.m.dropStaged(ref.staged)
		default:
			relinked = append(relinked, replaced[ref.ID])
		}
	}
	for _, sp := range d.mu.scratch {
		refs = append(refs, PageRef{sp.ID, sp})
	}
	d.mu.Unlock()
	d.m.leave(d)
	d.m.unref(refs)
	d.removeFiles()
	if len(relinked) > 0 {
		d.m.Changed(relinked)
	}
}

func (d *Draft) removeFiles() {
	d.journal.close()
	_ = removeDraftDir(d.m.draftDir(d.ID))
}

// removeDraftDir removes the journal first: without it there is no staging, whatever
// else a daemon that is killed meanwhile leaves behind.
func removeDraftDir(dir string) error {
	if err := os.Remove(filepath.Join(dir, "journal")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// Discard ends the staging: nothing of it is left but pages that others hold.
// It waits for no handle; open files keep their bytes until they are closed.
func (d *Draft) Discard() error { return d.discard(func() bool { return true }) }

// discard is Discard if may, which is asked under the lock, says so; else EBUSY.
func (d *Draft) discard(may func() bool) error {
	d.mu.Lock()
	err := d.usableLocked()
	if err == nil && !may() {
		err = syscall.EBUSY
	}
	if err != nil {
		d.mu.Unlock()
		return err
	}
	d.mu.gone = true
	var refs []PageRef
	var reserved int64
	for i := range d.mu.slots {
		s := &d.mu.slots[i]
		refs = append(refs, s.page)
		if s.reserved {
			_, g, _ := d.mu.content.layout.At(i)
			reserved += evict.Charge(d.mu.content.layout.Groups[g].PageBytes)
		}
	}
	for _, sp := range d.mu.scratch {
		refs = append(refs, PageRef{sp.ID, sp})
	}
	d.mu.Unlock()
	d.m.leave(d)
	d.removeFiles()
	d.m.unref(refs)
	if reserved > 0 {
		d.m.Budget.Unreserve(reserved)
	}
	return nil
}

// Reap discards the stagings and ghosts that nobody has held or changed for the
// timeout, and returns them: the kernel may know their names.
func (m *Manager) Reap() []*Draft {
	var reaped []*Draft
	now := m.Now()
	for _, d := range m.All() {
		idle := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) >= m.Timeout }
		if !idle(d.idleSince()) {
			continue
		}
		// Somebody may have come in this instant.
		if d.discard(func() bool { return idle(d.idleSinceLocked()) }) == nil {
			reaped = append(reaped, d)
		}
	}
	return reaped
}

// Remove is rmdir of the staging: ENOTEMPTY while it has anything but made
// files.
func (d *Draft) Remove() error {
	if !d.empty() {
		return syscall.ENOTEMPTY
	}
	return d.Discard()
}
