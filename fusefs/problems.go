package fusefs

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"ckptfs/evict"
)

// problemKind names what can be wrong, for metrics and alerts.
type problemKind string

// The kinds of problems.
const (
	problemDiskFailing problemKind = "disk_failing"   // the disk tier answers with errors, or not at all
	problemDiskFull    problemKind = "disk_full"      // it takes no more pages
	problemLostPages   problemKind = "lost_pages"     // pages had no good copy
	problemDeaths      problemKind = "daemon_died"    // a daemon has died lately
	problemUpgrade     problemKind = "upgrade_failed" // the last upgrade was taken back
	problemRebuilt     problemKind = "index_rebuilt"  // the index was made anew at the start
	problemHandles     problemKind = "handles"        // few open files are left for clients
	problemFiles       problemKind = "open_files"     // few descriptors are left for the daemon
	problemStagings    problemKind = "stagings"       // no further staging can be made
)

func problemKinds() []problemKind {
	return []problemKind{problemDiskFailing, problemDiskFull, problemLostPages, problemDeaths, problemUpgrade, problemRebuilt,
		problemHandles, problemFiles, problemStagings}
}

// problem is something wrong, in one sentence that says what to do where there is
// something to do.
type problem struct {
	kind problemKind
	text string
}

// deathTold is how long the death of a daemon is a problem.
const deathTold = time.Hour

// findProblems looks through the status, and at the disk.
func (fs *FS) findProblems(s *Status) []problem {
	found := fs.diskProblems()
	add := func(is bool, kind problemKind, format string, args ...any) {
		if is {
			found = append(found, problem{kind, fmt.Sprintf(format, args...)})
		}
	}
	add(s.Counters["lost_pages"] > 0, problemLostPages, "%d pages were lost, and %d generations retired for it; the log says which, bad files are in %s/quarantine",
		s.Counters["lost_pages"], s.Counters["generations_retired_lost"], s.Disk.Dir)
	if at := s.LastDeathAt; at != nil {
		ago := fs.now().Sub(*at).Round(time.Second)
		add(ago < deathTold, problemDeaths, "the daemon died %v ago (%s) and was started again; restarts since the mount: %d", ago, s.LastDeath, s.Restarts)
	}
	add(s.UpgradeError != "", problemUpgrade, "the last upgrade was taken back: %s", s.UpgradeError)
	add(fs.rebuild != "", problemRebuilt, "the index was made anew from the disk tier at the start: %s", fs.rebuild)
	add(nearly(s.Handles.Open, int64(s.Handles.Max)), problemHandles, "%d of %d open files are in use; leases.json says by whom", s.Handles.Open, s.Handles.Max)
	add(nearly(int64(s.Files.Open), int64(s.Files.Max)), problemFiles, "the daemon has %d of %d descriptors open; raise its limit (LimitNOFILE)", s.Files.Open, s.Files.Max)
	add(s.StagingsMax > 0 && s.Stagings >= s.StagingsMax, problemStagings, "%d stagings are open, the limit: mkdir of another is EAGAIN; see --max-staging and --staging-timeout", s.Stagings)
	return found
}

// nearly reports whether less than a tenth is left.
func nearly(used, limit int64) bool { return limit > 0 && used > limit-limit/10 }

func (fs *FS) diskProblems() []problem {
	var found []problem
	for _, t := range fs.tiers.Troubles() {
		ago := fs.now().Sub(t.Since).Round(time.Second)
		what := map[evict.Work]string{evict.WorkLoad: "be read", evict.WorkWriteBack: "be written"}[t.Work]
		if errors.Is(t.Err, syscall.ENOSPC) {
			found = append(found, problem{problemDiskFull, fmt.Sprintf("the disk tier has been full for %v; new pages stay in RAM: %v", ago, t.Err)})
			continue
		}
		found = append(found, problem{problemDiskFailing, fmt.Sprintf("pages cannot %s on disk for %v: %v", what, ago, t.Err)})
	}
	return found
}

func (s *Status) has(kind problemKind) bool {
	return slices.ContainsFunc(s.problems, func(p problem) bool { return p.kind == kind })
}

// Ready reports why the mount should not be sent clients now, nil if it should.
func (fs *FS) Ready() error {
	if fs.stopping.Load() {
		return errors.New("it stops")
	}
	for _, p := range fs.diskProblems() {
		if p.kind == problemDiskFailing {
			return errors.New(p.text)
		}
	}
	return nil
}
