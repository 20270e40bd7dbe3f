package fusefs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
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
// wrote pages in the staging or hold its lease, as an empty directory that shows
// in no listing. Whoever else uses the name finds it
// free.
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
	target string          // the generation's name
	pids   map[int]bool    // processes that see it
	tids   map[uint32]bool // threads that see it
	until  time.Time
	attr   index.Attr
}

// tombstoneLife is how long a rank may come late.
const tombstoneLife = 10 * time.Second

// bury leaves a tombstone for the processes that worked in a staging which the
// process pid has published.
func (fs *FS) bury(d *staging.Draft, name string, g *index.Generation, pid uint32) {
	pids := map[int]bool{}
	tids := map[uint32]bool{}
	workers := d.Workers()
	fs.handles.each(func(h *handle) {
		tid := h.rec.pid // first: the record is another handle's once this one is released
		if h.lease.draft.Load() == d {
			workers = append(workers, tid)
		}
	})
	for _, tid := range workers {
		if p := processOf(tid); p != 0 {
			pids[p] = true
		}
	}
	// The publisher has been told. Other threads of its process are ranks only if
	// they have written beside it; then they are known one by one.
	if own := processOf(pid); own != 0 {
		delete(pids, own)
		for _, tid := range workers {
			if d.Parallel() && tid != pid && processOf(tid) == own {
				tids[tid] = true
			}
		}
	}
	// Clients in a PID namespace that is not seen from here all have the number 0.
	// Which of them is late can't be told, so all see it, if there is a rank that
	// can be late.
	if doc := g.Identity.Document(); pid == 0 && doc != nil && doc.WorldSize > 1 {
		pids[0] = true
	}
	if len(pids)+len(tids) == 0 {
		return
	}
	fs.putTombstone(g, name, pids, tids, fs.now().Add(tombstoneLife))
}

// putTombstone enters a tombstone, and forgets those that are over.
func (fs *FS) putTombstone(g *index.Generation, name string, pids map[int]bool, tids map[uint32]bool, until time.Time) {
	t := &tombstone{tombKey{g.Identity.ID, name}, g.ID, g.Name, pids, tids, until, g.Attr()}
	ts := &fs.tombs
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.m == nil {
		ts.m, ts.byID = map[tombKey]*tombstone{}, map[index.ObjectID]*tombstone{}
	}
	for k, old := range ts.m {
		if k == t.key || fs.now().After(old.until) {
			fs.forgetTombstoneLocked(old)
		}
	}
	ts.m[t.key], ts.byID[t.gen] = t, t
	kept := keptTombstone{Name: []byte(name), Until: until}
	for p := range pids {
		kept.PIDs = append(kept.PIDs, p)
	}
	for t := range tids {
		kept.TIDs = append(kept.TIDs, t)
	}
	if raw, err := json.Marshal(kept); err == nil {
		_ = os.WriteFile(fs.tombPath(g.ID), raw, 0o600) // only a restart would need it
	}
}

// keptTombstone is a tombstone as the next daemon finds it in the RAM tier.
type keptTombstone struct {
	Name  []byte
	PIDs  []int
	TIDs  []uint32
	Until time.Time
}

func (fs *FS) tombPath(gen index.ObjectID) string {
	return filepath.Join(fs.cfg.RAMDir, "t", strconv.FormatUint(uint64(gen), 16))
}

// openTombstones takes up the tombstones of a former daemon, and makes those
// that it did not come to.
func (fs *FS) openTombstones() error {
	dir := filepath.Join(fs.cfg.RAMDir, "t")
	if fs.cfg.FreshMount {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, _ := strconv.ParseUint(e.Name(), 16, 64)
		g := fs.idx.GenerationByID(index.ObjectID(id))
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		var kept keptTombstone
		if err != nil || g == nil || json.Unmarshal(raw, &kept) != nil {
			os.Remove(filepath.Join(dir, e.Name()))
			continue
		}
		pids := map[int]bool{}
		for _, p := range kept.PIDs {
			pids[p] = true
		}
		tids := map[uint32]bool{}
		for _, t := range kept.TIDs {
			tids[t] = true
		}
		fs.putTombstone(g, string(kept.Name), pids, tids, kept.Until)
	}
	for _, l := range fs.stage.Late {
		pids := map[int]bool{}
		for _, tid := range l.Workers {
			pids[processOf(tid)] = true
		}
		if g := fs.idx.GenerationByID(l.ID); g != nil && len(l.Workers) > 1 {
			fs.putTombstone(g, l.Name, pids, nil, fs.now().Add(tombstoneLife))
		}
	}
	return nil
}

// find gives the tombstone of a name that the process may see.
func (ts *tombstones) find(identity index.ObjectID, name string, pid uint32, now time.Time) *tombstone {
	ts.mu.Lock()
	t := ts.m[tombKey{identity, name}]
	ts.mu.Unlock()
	if t == nil || now.After(t.until) {
		return nil
	}
	process := processOf(pid)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if (t.pids[process] && (process != 0 || pid == 0)) || t.tids[pid] {
		return t
	}
	return nil
}

func (ts *tombstones) of(id index.ObjectID) *tombstone {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byID[id]
}

// removeTombstone ends one.
func (fs *FS) removeTombstone(t *tombstone) {
	fs.tombs.mu.Lock()
	defer fs.tombs.mu.Unlock()
	if fs.tombs.byID[t.gen] == t {
		fs.forgetTombstoneLocked(t)
	}
}

// forgetTombstoneLocked ends one that is entered.
func (fs *FS) forgetTombstoneLocked(t *tombstone) {
	delete(fs.tombs.m, t.key)
	delete(fs.tombs.byID, t.gen)
	os.Remove(fs.tombPath(t.gen))
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
