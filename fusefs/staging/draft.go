package staging

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ckptfs/index"
	"ckptfs/pages"
)

// Draft is a tree that can change: a staging, or a ghost, the tree of a retired
// generation whose names are being removed.
//
// Its states: open (no manifest yet), accepted (pages may come), publishing
// (nothing may change), gone.
type Draft struct {
	m        *Manager
	ID       index.ObjectID // becomes the generation's id
	Identity *index.Identity
	doc      *index.Document // the identity's, as it was when this was made
	journal  *journal

	accept sync.Mutex // serializes checks of the manifest and plans

	mu struct {
		sync.Mutex
		name       string
		ghost      bool
		publishing bool
		decided    chan struct{} // closed when the publication under way is decided
		gone       bool
		attr       index.Attr
		sub        map[uint64]index.Attr // set attributes of directories and files below
		changed    time.Time
		handles    int
		workers    map[uint32]bool     // threads that have made pages in it
		writing    map[uint32]pages.ID // threads that have pages open for writing, and the last of these
		parallel   bool                // two threads have had at the same time
		errorText  string
		hidden     map[EntryType]bool // made files that were unlinked
		hasTokens  bool
		hasFile    bool // manifest.json exists, accepted or not

		ranks       map[int]bool   // made before the manifest
		provisional []string       // names of group directories made before the manifest, by number
		provMade    map[Place]bool // those that exist
		removed     map[Place]bool // directories of the manifest that were removed

		content *content // nil until the manifest is accepted
		slots   []slot
		scratch map[pages.ID]*stagedPage

		kin     index.Kinship // of its publication
		brought []pages.ID    // likewise
	}
}

// content is an accepted manifest and what follows from it. It never changes.
type content struct {
	manifest *index.Manifest
	derived  *index.Derived
	layout   *index.Layout
	kin      []index.ObjectID // see kinFile
}

// slot is one page of the layout.
type slot struct {
	page     PageRef // ID 0: missing
	reserved bool    // bytes are reserved for it
}

func newDraft(m *Manager, id index.ObjectID, identity *index.Identity, name string, ghost bool, attr index.Attr) *Draft {
	d := &Draft{m: m, ID: id, Identity: identity, doc: identity.Document()}
	d.mu.name, d.mu.ghost, d.mu.attr = name, ghost, attr
	d.mu.sub = map[uint64]index.Attr{}
	d.mu.hidden = map[EntryType]bool{}
	d.mu.ranks = map[int]bool{}
	d.mu.provMade = map[Place]bool{}
	d.mu.removed = map[Place]bool{}
	d.mu.scratch = map[pages.ID]*stagedPage{}
	d.mu.workers = map[uint32]bool{}
	d.mu.writing = map[uint32]pages.ID{}
	d.mu.changed = m.Now()
	return d
}

// maxWorkers bounds how many threads are remembered.
const maxWorkers = 8192

// Worked remembers a thread that makes pages in the staging.
func (d *Draft) Worked(tid uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.workers) < maxWorkers {
		d.mu.workers[tid] = true
	}
}

// Writes tells that a thread has opened a page for writing.
func (d *Draft) Writes(tid uint32, id pages.ID) {
	var others []pages.ID
	d.mu.Lock()
	for other, page := range d.mu.writing {
		if other != tid && !d.mu.parallel {
			others = append(others, page)
		}
	}
	d.mu.writing[tid] = id
	d.mu.Unlock()
	for _, page := range others {
		// A close is told late; whether the other still writes, its file knows.
		if busy, err := d.m.ram.HasWriter(page); err == nil && busy {
			d.mu.Lock()
			d.mu.parallel = true
			d.mu.Unlock()
			return
		}
	}
}

// Written tells that a thread has closed a page that it had open for writing.
func (d *Draft) Written(tid uint32, id pages.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.writing[tid] == id {
		delete(d.mu.writing, tid)
	}
}

// Parallel reports whether several threads have written at the same time.
func (d *Draft) Parallel() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.parallel
}

// Workers lists the threads that have made pages in the staging.
func (d *Draft) Workers() []uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.mu.workers))
}

// Name is the staging's name, or the retired generation's.
func (d *Draft) Name() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.name
}

// Ghost reports whether this is a retired generation's tree in its old place.
func (d *Draft) Ghost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.ghost
}

// Hold counts an open handle on the staging or on anything in it: its lease.
func (d *Draft) Hold() {
	d.mu.Lock()
	d.mu.handles++
	d.mu.Unlock()
}

// Unhold ends a Hold; the timeout runs from then.
func (d *Draft) Unhold() {
	d.mu.Lock()
	d.mu.handles--
	d.mu.changed = d.m.Now()
	d.mu.Unlock()
}

// idleSince is when the staging was last held or changed; the zero time while
// it is held.
func (d *Draft) idleSince() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.idleSinceLocked()
}

func (d *Draft) idleSinceLocked() time.Time {
	if d.mu.handles > 0 || d.mu.publishing {
		return time.Time{}
	}
	return d.mu.changed
}

// Attr gives the attributes of the staging (sub 0) or of what lies below it;
// what was never set follows the staging.
func (d *Draft) Attr(sub uint64) index.Attr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attrLocked(sub)
}

func (d *Draft) attrLocked(sub uint64) index.Attr {
	if a, ok := d.mu.sub[sub]; ok {
		return a
	}
	return d.mu.attr
}

// SetAttr changes attributes and keeps them.
func (d *Draft) SetAttr(sub uint64, change func(index.Attr) index.Attr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return err
	}
	a := change(d.attrLocked(sub))
	if err := d.journal.append(record{Do: doAttr, Sub: sub, Attr: &a}); err != nil {
		return err
	}
	d.applyAttrLocked(sub, a)
	return nil
}

func (d *Draft) applyAttrLocked(sub uint64, a index.Attr) {
	if sub == 0 {
		d.mu.attr = a
		return
	}
	d.mu.sub[sub] = a
}

// usableLocked is called first by whatever changes the staging. It waits while a
// publication is being decided (the lock is let go meanwhile): nobody sees EBUSY
// for another rank's attempt. ENOENT if the staging is gone then.
func (d *Draft) usableLocked() error {
	for d.mu.publishing {
		decided := d.mu.decided
		d.mu.Unlock()
		<-decided
		d.mu.Lock()
	}
	if d.mu.gone {
		return syscall.ENOENT
	}
	return nil
}

// decide ends a publication's attempt.
func (d *Draft) decide() {
	d.mu.Lock()
	d.mu.publishing = false
	close(d.mu.decided)
	d.mu.Unlock()
}

func (d *Draft) touchLocked() {
	d.mu.changed = d.m.Now()
	d.mu.attr.Mtime = d.mu.changed.UnixNano()
}

// FilePath is where a written file of the root (manifest.json, tokens) lies.
func (d *Draft) FilePath(t EntryType) string {
	name := "manifest"
	if t == EntryTokens {
		name = "tokens"
	}
	return filepath.Join(d.m.draftDir(d.ID), name)
}

// CreateFile makes manifest.json or tokens, empty. EEXIST if it is there, EROFS
// for tokens that can no longer be of use.
func (d *Draft) CreateFile(t EntryType, a index.Attr, sub uint64, op index.Op) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return nil, err
	}
	has := &d.mu.hasFile
	if t == EntryTokens {
		has = &d.mu.hasTokens
	}
	if *has {
		return nil, syscall.EEXIST
	}
	if d.mu.content != nil {
		return nil, refuse(syscall.EPERM, "the manifest was accepted; make a new staging for another one")
	}
	// Recorded before it is made: a request that is sent again makes what is not
	// there, and must not find a file that it has made itself.
	if err := d.journal.append(record{Do: doAttr, Op: op, Sub: sub, Attr: &a}); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(d.FilePath(t), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	d.applyAttrLocked(sub, a)
	*has = true
	d.touchLocked()
	return f, nil
}

// Accepted reports whether the manifest has been accepted.
func (d *Draft) Accepted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.content != nil
}

// Layout is the accepted manifest's, or nil.
func (d *Draft) Layout() *index.Layout {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.content == nil {
		return nil
	}
	return d.mu.content.layout
}

// ErrorText is the reason of the last refusal, for the `error` file; "" if none.
func (d *Draft) ErrorText() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.errorText
}

// setError keeps a reason for the error file, over a restart of the daemon too;
// "" takes it away.
func (d *Draft) setError(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.gone || text == d.mu.errorText && !d.mu.hidden[EntryError] {
		return
	}
	d.mu.errorText = text
	d.mu.hidden[EntryError] = false
	if err := d.journal.append(record{Do: doError, Name: []byte(text)}); err != nil {
		d.m.Log.Debug("the reason of a refusal would not outlive this daemon", "error", err)
	}
}

// Hide takes a made file's name away (rm -r does); it comes back when it is
// made anew.
func (d *Draft) Hide(t EntryType, op index.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.gone || d.mu.hidden[t] {
		return syscall.ENOENT
	}
	if err := d.journal.append(record{Do: doHide, Op: op, File: madeNames[t]}); err != nil {
		return err
	}
	d.mu.hidden[t] = true
	return nil
}

// madeNames are the names of made files.
var madeNames = map[EntryType]string{EntryPlan: "plan.json", EntryError: "error"}

// RemoveFile unlinks manifest.json or tokens. Without its manifest a staging
// takes no more pages.
func (d *Draft) RemoveFile(t EntryType, op index.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(); err != nil {
		return err
	}
	has := &d.mu.hasFile
	if t == EntryTokens {
		has = &d.mu.hasTokens
	}
	if !*has {
		return syscall.ENOENT
	}
	// Recorded before it is removed; a daemon that is killed in between leaves the
	// rest to the next one.
	if err := d.journal.append(record{Do: doHide, Op: op, File: filepath.Base(d.FilePath(t))}); err != nil {
		return err
	}
	d.removeFileLocked(t)
	*has = false
	d.touchLocked()
	d.releaseReservedLocked()
	return nil
}

func (d *Draft) removeFileLocked(t EntryType) {
	if t == EntryManifest && d.mu.content != nil {
		// Its pages can still be named, to be removed.
		os.Rename(d.FilePath(t), d.FilePath(t)+removedSuffix)
		return
	}
	os.Remove(d.FilePath(t))
}

// removedSuffix marks an accepted manifest that was unlinked.
const removedSuffix = ".removed"

// groupName is the name of a group directory.
func (d *Draft) groupNameLocked(p Place) (string, bool) {
	switch {
	case p.Level == LevelGroup && d.mu.content != nil && p.Group < len(d.mu.content.layout.Groups):
		return d.mu.content.layout.Groups[p.Group].Name, true
	case p.Level == LevelProvisional && p.Group < len(d.mu.provisional):
		return d.mu.provisional[p.Group], true
	}
	return "", false
}

// resolveLocked turns a provisional directory into the manifest's, once there is
// one of that name.
func (d *Draft) resolveLocked(p Place) Place {
	if p.Level != LevelProvisional || d.mu.content == nil || p.Group >= len(d.mu.provisional) {
		return p
	}
	if g, ok := d.mu.content.layout.GroupIndex(d.mu.provisional[p.Group]); ok {
		return Place{LevelGroup, p.Rank, g}
	}
	return p
}

// existsLocked reports whether the directory is there.
func (d *Draft) existsLocked(p Place) bool {
	if d.mu.gone {
		return false
	}
	switch p.Level {
	case LevelRoot:
		return true
	case LevelRank:
		if d.mu.content != nil && p.Rank < d.mu.content.layout.WorldSize {
			return !d.mu.removed[p]
		}
		return d.mu.ranks[p.Rank]
	case LevelGroup:
		return d.mu.content != nil && p.Group < len(d.mu.content.layout.Groups) &&
			p.Rank < d.mu.content.layout.WorldSize && !d.mu.removed[p]
	}
	return d.mu.provMade[p]
}

// Exists reports whether the directory is there.
func (d *Draft) Exists(p Place) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.existsLocked(d.resolveLocked(p))
}

// isScratchName reports whether a name may be a scratch file's.
func isScratchName(name string) bool { return strings.HasPrefix(name, ".") && len(name) > 1 }

func (d *Draft) provisionalNumberLocked(name string) (int, bool) {
	i := slices.Index(d.mu.provisional, name)
	return i, i >= 0
}
