package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that is full, read-only, without inodes, or has lost a directory, with
// state and disk tier on it.

// onSmallDisk puts the state directory of a mount on a small tmpfs of its own,
// which stands for a disk.
func onSmallDisk(t *testing.T, options string, flags ...string) *mount {
	t.Helper()
	requireFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	disk, err := os.MkdirTemp(suite.dir, "disk-")
	must(t, err)
	must(t, unix.Mount("small", disk, "tmpfs", 0, options))
	t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) }) // after the mount's own
	m := newMount(t, modes[0], append(flags, "--l2-min-free", "0", "--retention", "recency")...)
	m.expectWarn("")
	m.state = filepath.Join(disk, "state")
	must(t, os.Mkdir(m.state, 0o755))
	m.start()
	return m
}

// fill takes all that is left of the disk, to the last byte.
func (m *mount) fill() (free func()) {
	m.t.Helper()
	path := filepath.Join(m.state, "fill")
	f, err := os.Create(path)
	must(m.t, err)
	defer f.Close()
	for _, piece := range []int{1 << 20, 4096, 1} {
		buf := make([]byte, piece)
		for err = error(nil); err == nil; _, err = f.Write(buf) {
		}
		if !errors.Is(err, syscall.ENOSPC) {
			m.t.Fatal(err)
		}
	}
	return func() { must(m.t, os.Remove(path)) }
}

func TestDiskFull(t *testing.T) {
	m := onSmallDisk(t, "size=40m", "--l1-size", "16MiB")
	id := newIdentity("full", 1)
	ident := m.addIdentity(t, "model", id)
	var gens []generation
	for i := range 20 {
		g := shapedGeneration(id, conversation(uint64(i), 900), 256, 32<<10)
		publish(t, ident, g)
		gens = append(gens, g)
	}
	free := m.fill()
	full := shapedGeneration(id, conversation(100, 900), 256, 32<<10)
	published := 0
	for i := range 200 { // the index's log has some room left
		full = shapedGeneration(id, conversation(uint64(100+i), 900), 256, 32<<10)
		if _, err := publishAs(ident, fmt.Sprint("full", i), full); err != nil {
			wantErrno(t, "a publication on a full disk", err, syscall.ENOSPC)
			break
		}
		published++
		gens = append(gens, full)
	}
	wantMissing(t, filepath.Join(ident, full.name()))
	t.Logf("%d generations were published on a full disk", published)
	for _, g := range gens[published:20] {
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	rmSilently(t, filepath.Join(ident, gens[0].name()))
	m.killKeeper()
	m.start()
	for _, g := range gens[1:20] {
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	rmSilently(t, filepath.Join(ident, gens[1].name()), filepath.Join(ident, gens[2].name()))
	free()
	again := shapedGeneration(id, conversation(300, 900), 256, 32<<10)
	eventually(t, "a publication when there is space", func() error {
		os.RemoveAll(filepath.Join(ident, ".staging", "again"))
		_, err := publishAs(ident, "again", again)
		return err
	})
	must(t, checkGeneration(filepath.Join(ident, again.name()), again))
	rmSilently(t, filepath.Join(m.path, "model"))
	m.stop()
	m.fsck(true)
}

func TestNoInodes(t *testing.T) {
	m := onSmallDisk(t, "size=64m,nr_inodes=700", "--l1-size", "1MiB", "--admission-timeout", "1s")
	id := newIdentity("inodes", 1)
	l := newLedger(m.addIdentity(t, "model", id), id, suite.seed)
	l.neverSync = true
	var err error
	for range 300 {
		if err = l.publishOne(); err != nil {
			break
		}
	}
	if err != nil {
		wantErrno(t, "a publication without inodes for pages on disk", err, syscall.ENOSPC)
	}
	for name, e := range l.gens {
		if e.fate != published {
			continue
		}
		if err := e.check(l.dir(e)); err != nil && !errors.Is(err, syscall.ENOENT) { // dropped whole, under pressure
			t.Errorf("%s: %v", name, err)
		}
	}
	rmSilently(t, filepath.Join(m.path, "model"))
	m.stop()
	m.fsck(true)
}

// TestDiskReadOnly makes the disk tier read-only while it is in use.
func TestDiskReadOnly(t *testing.T) {
	m := onSmallDisk(t, "size=64m", "--l1-size", "4MiB", "--admission-timeout", "1s")
	id := newIdentity("readonly", 1)
	ident := m.addIdentity(t, "model", id)
	m.stop()
	disk := filepath.Join(m.state, "disk")
	must(t, unix.Mount(disk, disk, "", unix.MS_BIND, ""))
	m.start()
	var gens []generation
	for i := range 20 {
		g := shapedGeneration(id, conversation(uint64(i), 900), 256, 64<<10)
		publish(t, ident, g)
		gens = append(gens, g)
	}
	eventually(t, "the disk becomes read-only", func() error { // not while a page is being written
		return unix.Mount("", disk, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	})
	for _, g := range gens {
		must(t, checkGeneration(filepath.Join(ident, g.name()), g))
	}
	for i := range 20 { // what is in RAM only goes with its generations, under pressure
		_, err := publishAs(ident, fmt.Sprint("ro", i), shapedGeneration(id, conversation(uint64(100+i), 900), 256, 64<<10))
		wantOneOf(t, "a publication while the disk is read-only", err, 0, syscall.ENOSPC)
	}
	must(t, unix.Mount("", disk, "", unix.MS_BIND|unix.MS_REMOUNT, ""))
	again := shapedGeneration(id, conversation(300, 900), 256, 64<<10)
	publish(t, ident, again)
	must(t, checkGeneration(filepath.Join(ident, again.name()), again))
	rmSilently(t, filepath.Join(m.path, "model"))
	m.stop()
	m.fsck(false)
	must(t, unix.Unmount(disk, 0))
}

// TestVanishedDirectories: subdirectories of the disk tier go. What was only
// there is lost and retired, the rest serves on, and new pages find their place.
func TestVanishedDirectories(t *testing.T) {
	m := onSmallDisk(t, "size=64m", "--l1-size", "1MiB")
	id := newIdentity("vanished", 1)
	l := newLedger(m.addIdentity(t, "model", id), id, suite.seed)
	l.neverSync = true
	for range 40 {
		must(t, l.publishOne())
	}
	dirs, err := filepath.Glob(filepath.Join(m.state, "disk", "[0-3]?"))
	must(t, err)
	for _, d := range dirs {
		must(t, os.RemoveAll(d))
	}
	l.settleDurable(t)
	for range 20 {
		must(t, l.publishOne())
	}
	l.settleDurable(t)
	m.stop()
	m.start()
	l.settle(t)
	m.stop()
	m.fsck(true)
}
