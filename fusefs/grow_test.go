package fusefs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/staging"
)

// TestNothingGrows: after many times as much work as before, every table of the
// daemon has as many entries as after a little, and the RAM tier as many files.
func TestNothingGrows(t *testing.T) {
	var little, much map[string]int
	t.Run("little", func(t *testing.T) { little = entriesAfter(t, 10, 500) })
	t.Run("much", func(t *testing.T) { much = entriesAfter(t, 100, 20_000) })
	for _, path := range slices.Sorted(maps.Keys(much)) {
		if path == sweepFound && much[path] <= much["fs.idx.mu.generationByID"] {
			continue
		}
		if much[path] != little[path] && !bounded(path) {
			t.Errorf("%s has %d entries, and after a little work %d", path, much[path], little[path])
		}
	}
	if little["fs.handles.live"] == 0 || little["fs.idx.mu.generationByID"] != 1 {
		t.Errorf("the tables are not seen: %v", little)
	}
}

// sweepFound has an entry for each generation without a blob once a pass over them has begun, and none before.
const sweepFound = "fs.tiers.blobs.sweep.found"

// bounded reports whether a table is allowed to fill, to a fixed size.
func bounded(path string) bool {
	return slices.ContainsFunc([]string{
		"fs.idx.pages.shards.clock",      // the pages used lately
		"fs.idx.retirements.",            // what lookups tell of generations that are gone
		"fs.tiers.Config.Policy.ghosts.", // generations that may come back
	}, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// entriesAfter does that much in a new filesystem, has the kernel's part forget
// all of it, and counts what is left when everything has come to rest.
func entriesAfter(t *testing.T, generations, opens int) map[string]int {
	t.Helper()
	fs, err := New(testConfig(t, -1, false))
	if err != nil {
		t.Fatal(err)
	}
	k := &rawClient{t: t, fs: fs}
	kept := k.publish(0)
	for i := range opens {
		k.openClose(kept[i%len(kept)])
	}
	for i := 1; i <= generations; i++ {
		nodes := k.publish(uint32(i))
		for _, n := range nodes {
			k.openClose(n)
		}
		k.remove(nodes[0])
	}
	for node, n := range k.known {
		fs.Forget(uint64(node), n)
	}
	if err := fs.Close(); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	countEntries(reflect.ValueOf(fs), "fs", map[uintptr]bool{}, counts)
	err = filepath.WalkDir(fs.cfg.RAMDir, func(path string, e os.DirEntry, err error) error {
		counts["files in "+strings.TrimPrefix(filepath.Dir(path), fs.cfg.RAMDir)]++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// countEntries counts the entries of the maps and slices that a value of this
// project's types has, and of those that it leads to, but not through other maps
// and slices.
func countEntries(v reflect.Value, path string, seen map[uintptr]bool, counts map[string]int) {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Uint8 {
			counts[path] += v.Len()
		}
	case reflect.Interface:
		countEntries(v.Elem(), path, seen, counts)
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] && strings.HasPrefix(v.Type().Elem().PkgPath(), "ckptfs/") {
			seen[v.Pointer()] = true
			countEntries(v.Elem(), path, seen, counts)
		}
	case reflect.Array:
		for i := range v.Len() {
			countEntries(v.Index(i), path, seen, counts)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			countEntries(v.Field(i), path+"."+v.Type().Field(i).Name, seen, counts)
		}
	}
}

// rawClient makes the requests that the kernel makes, and remembers the nodes
// that it would remember.
type rawClient struct {
	t     *testing.T
	fs    *FS
	known map[nodeID]uint64
}

func (k *rawClient) must(s fuse.Status) {
	k.t.Helper()
	if !s.Ok() {
		k.t.Fatal(s)
	}
}

func (k *rawClient) lookup(dir nodeID, name string) nodeID {
	k.t.Helper()
	var out fuse.EntryOut
	k.must(k.fs.Lookup(nil, &fuse.InHeader{NodeId: uint64(dir)}, name, &out))
	if k.known == nil {
		k.known = map[nodeID]uint64{}
	}
	k.known[nodeID(out.NodeId)]++
	return nodeID(out.NodeId)
}

func (k *rawClient) openClose(n nodeID) {
	k.t.Helper()
	in, out := fuse.OpenIn{InHeader: fuse.InHeader{NodeId: uint64(n)}}, fuse.OpenOut{}
	if n.isDir() {
		k.must(k.fs.OpenDir(nil, &in, &out))
		k.fs.ReleaseDir(&fuse.ReleaseIn{Fh: out.Fh})
		return
	}
	k.must(k.fs.Open(nil, &in, &out))
	k.must(k.fs.Flush(nil, &fuse.FlushIn{Fh: out.Fh}))
	k.fs.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
}

const grownPages = 3

// publish stages and publishes a generation, and gives its directory and the
// nodes below it.
func (k *rawClient) publish(first uint32) []nodeID {
	k.t.Helper()
	d := testDraft(k.t, k.fs, "s", grownPages, first)
	dir := placeNode(d.ID, staging.Place{})
	k.openClose(k.lookup(dir, "plan.json"))
	fillDraft(k.t, d, grownPages)
	name := planName(k.t, d)
	identity := d.Identity
	k.must(k.fs.Rename(nil, &fuse.RenameIn{InHeader: fuse.InHeader{NodeId: uint64(makeNode(kindStagingDir, identity.ID))}, Newdir: uint64(makeNode(kindIdentity, identity.ID))}, "s", name))
	nodes := []nodeID{k.lookup(makeNode(kindIdentity, identity.ID), name)}
	nodes = append(nodes, k.lookup(nodes[0], "manifest.json"), k.lookup(nodes[0], "rank-0"))
	group := k.lookup(nodes[2], "a")
	for p := range grownPages {
		nodes = append(nodes, k.lookup(group, fmt.Sprintf("%08d", p)))
	}
	return append(nodes, group)
}

// remove is rm -r of a generation.
func (k *rawClient) remove(dir nodeID) {
	k.t.Helper()
	g := k.fs.idx.GenerationByID(dir.generation())
	rank := k.lookup(dir, "rank-0")
	group := k.lookup(rank, "a")
	for p := range grownPages {
		k.must(k.fs.Unlink(nil, &fuse.InHeader{NodeId: uint64(group)}, fmt.Sprintf("%08d", p)))
	}
	k.must(k.fs.Rmdir(nil, &fuse.InHeader{NodeId: uint64(rank)}, "a"))
	k.must(k.fs.Rmdir(nil, &fuse.InHeader{NodeId: uint64(dir)}, "rank-0"))
	k.must(k.fs.Unlink(nil, &fuse.InHeader{NodeId: uint64(dir)}, "manifest.json"))
	k.must(k.fs.Rmdir(nil, &fuse.InHeader{NodeId: uint64(makeNode(kindIdentity, g.Identity.ID))}, g.Name))
	var out fuse.EntryOut
	if s := k.fs.Lookup(nil, &fuse.InHeader{NodeId: uint64(makeNode(kindIdentity, g.Identity.ID))}, g.Name, &out); s != fuse.Status(syscall.ENOENT) {
		k.t.Fatalf("what was removed: %v", s)
	}
}
