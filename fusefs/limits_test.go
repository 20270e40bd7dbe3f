package fusefs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"ckptfs/fusefs/staging"
)

func TestHandleLimit(t *testing.T) {
	for _, c := range []struct {
		wanted, stagings int
		files            uint64
		want             int
	}{
		{65536, 128, 1 << 20, 65536},
		{65536, 128, 20000, 20000 - 256 - 128},
		{65536, 128, 1 << 63, 65536}, // no limit
		{65536, 128, 0, 65536},       // not known
		{65536, 128, 100, 16},
		{1000, 128, 4096, 1000},
	} {
		if got := handleLimit(c.wanted, c.stagings, c.files); got != c.want {
			t.Errorf("%d wanted, %d stagings, %d descriptors: %d, want %d", c.wanted, c.stagings, c.files, got, c.want)
		}
	}
}

// TestHandleMemory: what an open handle takes is what its table's comment says,
// and the table on the RAM tier has a record for each and no more.
func TestHandleMemory(t *testing.T) {
	slot, open, backing := slotBytes, unsafe.Sizeof(handle{}), unsafe.Sizeof(backingEntry{})+unsafe.Sizeof(nodeID(0))
	if slot != 64 || open != 128 || backing != 32 {
		t.Errorf("a slot takes %d bytes, an open handle %d, a backing file %d; the comment says 64, 128 and 32", slot, open, backing)
	}
	fs := quietFS(t)
	st, err := os.Stat(filepath.Join(fs.cfg.RAMDir, "handles"))
	if want := int64(tableHeader + (defaultSlots+controlHandles)*64); err != nil || st.Size() != want {
		t.Errorf("the table: %v, %v; want %d bytes", st, err, want)
	}
}

func TestClientMemory(t *testing.T) {
	var m clientMemory
	a, b := &handle{}, &handle{}
	for _, c := range []struct {
		h     *handle
		bytes int64
		err   error
		used  int64
	}{
		{a, 1000, nil, 1000}, {a, 3000, nil, 3000}, {b, maxClientBytes - 3000, nil, maxClientBytes},
		{a, 3001, syscall.ENOMEM, maxClientBytes}, {a, 2000, nil, maxClientBytes - 1000}, {b, 0, nil, 2000}, {a, 0, nil, 0},
	} {
		if err := m.charge(c.h, c.bytes); !errors.Is(err, c.err) || m.used.Load() != c.used {
			t.Errorf("%d bytes: %v, %d used; want %v, %d", c.bytes, err, m.used.Load(), c.err, c.used)
		}
	}
}

// TestSnapshotsAreBounded: what handles have fixed is counted, in memory and in
// the RAM tier, and given back.
func TestSnapshotsAreBounded(t *testing.T) {
	fs := quietFS(t)
	var open []*handle
	for range 5 {
		h, err := fs.handles.take(genNode(kindPlan, 9, staging.Place{}), 0, 1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := fs.keepSnapshot(h, make([]byte, maxSnapshots/4)); err != nil {
			t.Fatal(err)
		}
		open = append(open, h)
	}
	files, err := os.ReadDir(filepath.Join(fs.cfg.RAMDir, "h"))
	if err != nil || len(files) != 4 || fs.snapshotted.Load() != maxSnapshots || fs.clients.used.Load() != 5*maxSnapshots/4 {
		t.Errorf("%d files, %d and %d bytes, %v", len(files), fs.snapshotted.Load(), fs.clients.used.Load(), err)
	}
	if b := fs.snapshot(open[4]); len(b) != maxSnapshots/4 {
		t.Errorf("the last one has %d bytes", len(b))
	}
	for _, h := range open {
		fs.dropHandle(h)
	}
	if files, _ := os.ReadDir(filepath.Join(fs.cfg.RAMDir, "h")); len(files) != 0 || fs.snapshotted.Load() != 0 || fs.clients.used.Load() != 0 {
		t.Errorf("%d files, %d and %d bytes are left", len(files), fs.snapshotted.Load(), fs.clients.used.Load())
	}
}
