package client

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Publication is the outcome of Publish: in every case the generation is
// visible, whole, to everybody.
type Publication struct {
	Generation string
	// Dir is the path of the generation.
	Dir string
	// Replay is false for the one call that made the generation visible. It is
	// true if another rank's did, or if the content was published before.
	Replay bool
	// Busy counts the attempts that found another rank not ready yet.
	Busy int
}

// Publish makes the generation visible if every page of every rank is complete,
// and else waits for the other ranks until ctx ends. Every rank calls it when
// its own pages are written; exactly one call gets Replay=false.
//
// The staging directory is gone afterwards: what remains of a replay is removed.
func (s *Staging) Publish(ctx context.Context) (Publication, error) {
	return s.publish(ctx, renameNew)
}

// renameNew renames a staging to its generation. EEXIST: that is published.
//
// With RENAME_NOREPLACE the kernel says so by itself for whatever has the name,
// also for what is left of a generation whose deletion was not carried through.
// So the filesystem is asked too. It knows no better if another rank has found
// a replay and is removing the staging.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err != unix.EEXIST {
		return err
	}
	asked := unix.Rename(from, to)
	if _, err := statAt(unix.AT_FDCWD, filepath.Join(from, "manifest.json")); asked != nil && err != nil {
		return unix.EEXIST
	}
	return asked
}

// publish is Publish with the system call as a parameter, for the errnos that
// a test cannot get from an ordinary directory.
func (s *Staging) publish(ctx context.Context, rename func(from, to string) error) (Publication, error) {
	result := Publication{Generation: s.generation, Dir: filepath.Join(s.identityDir, s.generation)}
	for wait := newBackoff(); ; result.Busy++ {
		err := retry(func() error { return rename(s.dir, result.Dir) })
		switch {
		case err == nil:
			return result, nil
		case err == unix.EEXIST, err == unix.ENOTEMPTY, err == unix.EPERM && s.isReplay():
			result.Replay = true
			return result, s.Abandon()
		case err == unix.ENOENT && s.published():
			result.Replay = true
			return result, nil
		case err == unix.ENOENT:
			return result, s.fail("publish", ErrGone)
		case err != unix.EBUSY:
			return result, s.fail("publish", err)
		}
		if ctxErr := wait.wait(ctx); ctxErr != nil {
			return result, s.fail("publish", fmt.Errorf("%w: %w%s", ctxErr, err, s.waitingFor()))
		}
	}
}

// isReplay reports whether the content is published, by what the plan says. In a
// sticky directory the kernel lets nobody replace what is another user's, and
// does not ask the filesystem either.
func (s *Staging) isReplay() bool {
	plan, err := s.Plan()
	return err == nil && plan.Published
}

// waitingFor tells whom a publication waited for, if the filesystem has not.
func (s *Staging) waitingFor() string {
	plan, err := s.readPlan()
	switch {
	case s.Reason() != "":
		return ""
	case err != nil || len(plan.Missing) == 0:
		return " (a page still has a writer or a writable mapping)"
	}
	return fmt.Sprintf(" (%d pages missing, the first is %s)", len(plan.Missing), plan.Missing[0].Path)
}
