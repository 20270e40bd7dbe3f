package fusefs

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"ckptfs/fusefs/staging"
	"ckptfs/index"
)

// A staging's name is gone once one rank has published it, but the other ranks'
// renames must still be told EEXIST, not ENOENT, and the kernel looks the name
// up before it asks. So the name stays, for a while and only for processes that
// worked in the staging and did not publish it themselves, as an empty directory
// that shows in no listing. Whoever else uses the name finds it free.
type tombstones struct {
	mu sync.Mutex
	m  map[tombKey]*tombstone
	// byID finds them by node.
	byID map[index.ObjectID]*tombstone
}

type tombKey struct {
	identity index.ObjectID
	name     string
}

type tombstone struct {
	key    tombKey
	gen    index.ObjectID
	target string // the generation's name
	pids   map[int]bool
	until  time.Time
	attr   index.Attr
}

// tombstoneLife is how long a rank may come late.
const tombstoneLife = 30 * time.Second

// bury leaves a tombstone for the processes that worked in a staging which the
// process pid has published.
func (fs *FS) bury(d *staging.Draft, name string, g *index.Generation, pid uint32) {
	pids := map[int]bool{}
	for _, tid := range d.Workers() {
		if p := processOf(tid); p != 0 {
			pids[p] = true
		}
	}
	delete(pids, processOf(pid))
	if len(pids) == 0 {
		return
	}
	t := &tombstone{tombKey{g.Identity.ID, name}, g.ID, g.Name, pids, fs.now().Add(tombstoneLife), g.Attr()}
	ts := &fs.tombs
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.m == nil {
		ts.m, ts.byID = map[tombKey]*tombstone{}, map[index.ObjectID]*tombstone{}
	}
	for k, old := range ts.m {
		if fs.now().After(old.until) {
			delete(ts.m, k)
			delete(ts.byID, old.gen)
		}
	}
	ts.m[t.key], ts.byID[t.gen] = t, t
}

// find gives the tombstone of a name that the process may see.
func (ts *tombstones) find(identity index.ObjectID, name string, pid uint32, now time.Time) *tombstone {
	ts.mu.Lock()
	t := ts.m[tombKey{identity, name}]
	ts.mu.Unlock()
	if t == nil || now.After(t.until) || !t.pids[processOf(pid)] {
		return nil
	}
	return t
}

func (ts *tombstones) of(id index.ObjectID) *tombstone {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byID[id]
}

// remove ends a tombstone.
func (ts *tombstones) remove(t *tombstone) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.m, t.key)
	delete(ts.byID, t.gen)
}

// processOf is the process that a thread belongs to; 0 if it is gone.
func processOf(tid uint32) int {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/status")
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(raw, []byte("\nTgid:\t"))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil {
		return 0
	}
	return pid
}

// renameTombstone answers a rank that came late.
func (fs *FS) renameTombstone(t *tombstone, to nodeID, newName string) error {
	switch {
	case to.kind() != kindIdentity:
		return syscall.EPERM
	case to.object() != t.key.identity:
		return syscall.EXDEV
	case newName != t.target:
		return syscall.EINVAL
	}
	return syscall.EEXIST
}
