package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openMany opens path until that fails, at most n times.
func openMany(path string, n int) (open []*os.File, err error) {
	for range n {
		f, err := os.Open(path)
		if err != nil {
			return open, err
		}
		open = append(open, f)
	}
	return open, nil
}

// TestTooManyHandles: who goes too far gets EMFILE; others go on, the operator sees it, and the daemon lives.
func TestTooManyHandles(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--max-handles", "64")
		ident, gens := sharedTree(t, m, 1)
		page := filepath.Join(ident, gens[0].name(), gens[0].pages()[0].path)
		before, err := m.status()
		must(t, err)
		mine, err := openMany(page, 1000)
		defer func() {
			for _, f := range mine {
				f.Close()
			}
		}()
		if !errors.Is(err, syscall.EMFILE) || len(mine) < 48 || len(mine) > 60 {
			t.Errorf("one process has %d open, then %v", len(mine), err)
		}
		// Others can still work, until all is taken.
		others := newAgent(t)
		var last error
		n := 0
		for ; n < 64 && last == nil; n++ {
			last = others.call(request{Op: "open", Path: page}).err()
		}
		if !errors.Is(last, syscall.EMFILE) || n < 4 {
			t.Errorf("another process has %d open, then %v", n, last)
		}
		if r := ckptfs(t, "status", m.path); r.code != 0 || !strings.Contains(r.out, "PROBLEM: ") || !strings.Contains(r.out, "of 64 handles") {
			t.Errorf("status: exit code %d, %s%s", r.code, r.out, r.errOut)
		}
		f := m.fileMetrics(t)
		if f.value(t, "ckptfs_handles_refused_total") < 2 || f.value(t, "ckptfs_problem", "kind=handles") != 1 || f.value(t, "ckptfs_handles_limit") != 64 {
			t.Error("the metrics do not tell")
		}
		for _, f := range mine {
			must(t, f.Close())
		}
		mine = nil
		eventually(t, "there is room again", func() error {
			open, err := openMany(page, 4)
			for _, f := range open {
				f.Close()
			}
			return err
		})
		must(t, checkGeneration(filepath.Join(ident, gens[0].name()), gens[0]))
		if after, err := m.status(); err != nil || after.PID != before.PID {
			t.Errorf("the daemon was %d, is %d, %v", before.PID, after.PID, err)
		}
		others.end()
	})
}

// TestFewDescriptors: where the daemon can have few descriptors, clients have so many handles less, and nothing breaks.
func TestFewDescriptors(t *testing.T) {
	requireFUSE(t)
	setpriv := tool(t, "setpriv")
	m := newMount(t, modes[1])
	// Without the right to raise its own limit.
	wrapper := filepath.Join(m.dir, "few")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n 600\nexec %s --bounding-set=-sys_resource --inh-caps=-sys_resource %s \"$@\"\n", setpriv, m.binary)
	must(t, os.WriteFile(wrapper, []byte(script), 0o755))
	m.binary = wrapper
	m.start()
	ident, gens := sharedTree(t, m, 1)
	limit := int(m.fileMetrics(t).value(t, "ckptfs_handles_limit"))
	if files := m.fileMetrics(t).value(t, "ckptfs_open_files_limit"); files != 600 || limit >= 600-128 || limit < 100 {
		t.Fatalf("%v descriptors, %d handles", files, limit)
	}
	open, err := openMany(filepath.Join(ident, gens[0].name(), gens[0].pages()[0].path), 600)
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%d are open, then %v", len(open), err)
	}
	buf := make([]byte, 1)
	for _, f := range open { // the daemon opens a page's file at the first read
		if _, err := f.Read(buf); err != nil {
			t.Fatalf("reading what is open: %v", err)
		}
	}
	for _, f := range open {
		must(t, f.Close())
	}
	publish(t, ident, smallGeneration(gens[0].ID, conversation(31, 700)))
}

// TestTooLongFiles: what is no page cannot be made longer than it may ever be.
func TestTooLongFiles(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	id := newIdentity("long", 1)
	ident := m.addIdentity(t, "model", id)
	dir := filepath.Join(ident, ".staging", "s")
	must(t, os.Mkdir(dir, 0o755))
	for name, most := range map[string]int64{"tokens": 16 << 20, "manifest.json": 256 << 20} {
		f, err := os.Create(filepath.Join(dir, name))
		must(t, err)
		_, err = f.WriteAt([]byte("x"), most-1)
		must(t, err)
		_, err = f.WriteAt([]byte("xy"), most-1)
		wantErrno(t, "writing beyond the most of "+name, err, syscall.EFBIG)
		wantErrno(t, "making "+name+" longer than its most", f.Truncate(most+1), syscall.EFBIG)
		must(t, f.Truncate(0))
		// posix_fallocate, and rsync --preallocate, go on without.
		wantErrno(t, "fallocate of "+name, unix.Fallocate(int(f.Fd()), 0, 0, 4096), syscall.EOPNOTSUPP)
		f.Close()
	}
	// A size alone costs nothing; whoever reads the file would pay for it.
	byHand := filepath.Join(filepath.Dir(ident), strings.Repeat("a", 40))
	must(t, os.Mkdir(byHand, 0o755))
	f, err := os.Create(filepath.Join(byHand, "identity.json"))
	must(t, err)
	for _, size := range []int64{1<<20 + 1, 1 << 60} {
		wantErrno(t, "an endless identity.json", f.Truncate(size), syscall.EFBIG)
	}
	wantErrno(t, "closing an empty identity.json", f.Close(), syscall.EINVAL)
	must(t, os.RemoveAll(dir))
}
