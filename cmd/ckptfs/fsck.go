package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"ckptfs/evict"
	"ckptfs/fusefs"
	"ckptfs/index"
	"ckptfs/pages"
)

const fsckUsage = "fsck [flags] [--state DIR] [--l2-dir DIR]"

const fsckAbout = `Checks a store that no daemon uses: RAM tier, disk tier and index, and all that each says of the others. Every
contradiction is one line; what a crash leaves and the next start clears by itself is printed as a leftover. It changes
nothing.

With --repair it corrects what can be corrected: an index that is lost, damaged or an old copy is kept aside and made
anew from the disk tier, records are corrected, generations that have lost a page are retired, and what nothing needs
is removed. No page is removed that a generation on disk needs.

It exits with 0 if the store is good (or good again), and with 1 if something is wrong.`

// fsckOptions are the flags of fsck.
type fsckOptions struct {
	state, disk    string
	repair, verify bool
}

func runFsck(ctx context.Context, args []string, io streams) error {
	var o fsckOptions
	fs := newFlags(io, fsckUsage, fsckAbout)
	fs.StringVar(&o.state, "state", defaultStateDir(), "the state directory")
	fs.StringVar(&o.disk, "l2-dir", "", "directory of the disk tier (default disk/ below --state)")
	fs.BoolVar(&o.repair, "repair", false, "correct what can be corrected")
	fs.BoolVar(&o.verify, "verify", false, "check every byte of every page on disk, not only its header")
	if err := parseFlags(fs, args, 0, 0); err != nil {
		return err
	}
	state, err := filepath.Abs(o.state)
	if err != nil {
		return withCode(exitState, err)
	}
	o.state = resolveExisting(state)
	if err := o.findStore(); err != nil {
		return withCode(exitState, err)
	}
	unlock, err := lockStopped(o.state)
	if err != nil {
		return err
	}
	defer unlock()
	return o.run(ctx, io)
}

// findStore says where the disk tier is, and refuses what is no store. A directory that is none must not become one, nor a
// --l2-dir that was forgotten mean that all pages in it are given up.
func (o *fsckOptions) findStore() error {
	if _, err := os.Stat(o.state); err != nil {
		return fmt.Errorf("there is no state to check: %w", err)
	}
	given := o.disk != ""
	if !given {
		o.disk = filepath.Join(o.state, "disk")
	}
	if _, err := os.Stat(o.disk); !errors.Is(err, os.ErrNotExist) {
		return nil // open says what is wrong with it
	}
	if _, err := os.Stat(filepath.Join(o.state, fusefs.IndexName)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s holds no store: there is no %s, and no disk tier at %s", o.state, fusefs.IndexName, o.disk)
	}
	if o.repair && !given {
		return fmt.Errorf("there is no disk tier at %s; say with --l2-dir where it is, or, if it is lost, that its pages are given up: --l2-dir %s", o.disk, o.disk)
	}
	return nil
}

// lockStopped takes the locks of a state that nobody uses.
func lockStopped(state string) (unlock func(), err error) {
	keeper, err := lockState(state, true)
	if err != nil {
		return nil, err
	}
	daemon, err := lockFile(filepath.Join(state, daemonLockName), true)
	if err != nil {
		keeper.release()
		if errors.Is(err, errLocked) {
			return nil, withCode(exitInUse, fmt.Errorf("a daemon (%s) still uses the state directory %s; stop it first", lockHolder(filepath.Join(state, daemonLockName)), state))
		}
		return nil, withCode(exitState, err)
	}
	return func() { daemon.release(); keeper.release() }, nil
}

func (o *fsckOptions) run(ctx context.Context, io streams) error {
	s, err := o.open(ctx, io)
	if err != nil {
		return err
	}
	defer o.close(s)
	s.Verify = o.verify
	if o.repair {
		did, err := evict.Repair(ctx, s, time.Now())
		for _, f := range did {
			fmt.Fprintf(io.out, "repaired %s\n", f)
		}
		if err != nil {
			return fmt.Errorf("the repair did not come to its end: %w", err)
		}
	}
	findings, err := evict.Check(ctx, s)
	if err != nil {
		return err
	}
	return report(io.out, findings)
}

// report prints what was found and says whether the store is good.
func report(out io.Writer, findings []evict.Finding) error {
	wrong := 0
	for _, f := range findings {
		if !f.Kind.Leftover() {
			wrong++
		}
		fmt.Fprintln(out, f)
	}
	if wrong > 0 {
		return fmt.Errorf("%d contradictions", wrong)
	}
	fmt.Fprintf(out, "the store is good (%d leftovers)\n", len(findings))
	return nil
}

// open opens the parts of the store that are there.
func (o *fsckOptions) open(ctx context.Context, io streams) (s evict.Store, err error) {
	path := filepath.Join(o.state, fusefs.IndexName)
	_, statErr := os.Stat(path)
	if _, err := os.Stat(o.disk); err == nil || o.repair {
		if s.Disk, err = pages.OpenDisk(pages.DiskConfig{Dir: o.disk, ReadOnly: !o.repair}); err != nil {
			return s, withCode(exitState, err)
		}
	}
	if s.RAM, err = o.openRAM(); err != nil {
		return s, withCode(exitRAM, err)
	}
	lost := ""
	switch s.Index, err = openExisting(path, statErr); {
	case errors.Is(err, index.ErrCorrupt):
		lost = err.Error()
	case err != nil:
		return s, withCode(exitState, err)
	case s.Disk != nil:
		if stale, err := evict.BeginTier(ctx, s.Index, s.Disk); errors.Is(err, pages.ErrTierChanged) {
			lost = "it belongs to another disk tier"
		} else if err != nil {
			return s, withCode(exitState, err)
		} else if stale {
			lost = "it is an old copy: the disk tier has been used since"
		}
	}
	if lost == "" {
		return s, nil
	}
	if !o.repair || s.Disk == nil {
		o.close(s)
		return s, withCode(exitState, fmt.Errorf("the index cannot be used: %s; --repair makes it anew from the disk tier", lost))
	}
	return o.rebuild(ctx, s, path, io)
}

// openExisting opens the index if there is one; a missing one is ErrCorrupt.
func openExisting(path string, statErr error) (*index.Index, error) {
	if errors.Is(statErr, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is none at %s", index.ErrCorrupt, path)
	}
	return index.Open(path, index.Options{})
}

// rebuild keeps the index aside and makes it anew.
func (o *fsckOptions) rebuild(ctx context.Context, s evict.Store, path string, io streams) (evict.Store, error) {
	if s.Index != nil {
		s.Index.Close()
	}
	aside, err := index.SetAside(path, time.Now())
	if err != nil {
		return s, withCode(exitState, err)
	}
	if s.Index, err = index.Open(path, index.Options{}); err != nil {
		return s, withCode(exitState, err)
	}
	r, err := evict.Rebuild(ctx, s.Index, s.Disk, slog.New(slog.NewTextHandler(io.err, nil)))
	if err == nil {
		err = evict.CountStart(ctx, s.Index, s.Disk)
	}
	if err != nil {
		return s, fmt.Errorf("rebuild the index: %w", err)
	}
	former := "there was no index; it was"
	if _, err := os.Stat(aside); err == nil {
		former = "the index was kept as " + aside + " and"
	}
	fmt.Fprintf(io.out, "%s made anew: %d generations; %d could not be\n", former, r.Generations, r.Left())
	return s, nil
}

// openRAM opens the RAM tier that a killed daemon has left, if there is one.
func (o *fsckOptions) openRAM() (*pages.RAM, error) {
	own := filepath.Join(o.state, ramDirName)
	if mounted, err := pages.Mounted(own); err != nil {
		return nil, err
	} else if mounted {
		return pages.OpenRAM(own)
	}
	if shared := sharedRAMDir(o.state); holdsPages(shared) {
		return pages.OpenRAM(shared)
	}
	return nil, nil
}

func (o *fsckOptions) close(s evict.Store) {
	if s.Index != nil {
		s.Index.Close()
	}
	if s.RAM != nil {
		s.RAM.Close()
	}
}
