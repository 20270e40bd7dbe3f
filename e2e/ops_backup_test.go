package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// rsyncBackup runs rsync -aHAX --delete and returns what it says it changed: one line for each file or attribute.
func rsyncBackup(t testing.TB, from, to string) []string {
	t.Helper()
	out := runTool(t, "rsync", "-aHAX", "--delete", "--itemize-changes", from+"/", to+"/")
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}

// inSeconds is a tree as rsync compares it: by default it sees no fractions of a second, and leaves those that its own
// writing has made.
func inSeconds(list []treeEntry) []treeEntry {
	list = withoutIno(list)
	for i := range list {
		list[i].Mtime /= 1e9
	}
	return list
}

// changes leaves out what rsync says of hard links that are there already.
func changes(lines []string) []string {
	var list []string
	for _, l := range lines {
		if !strings.HasPrefix(l, "cd") && !strings.HasPrefix(l, "*deleting") && strings.HasPrefix(l, ".") && strings.Trim(l[2:11], ". ") == "" {
			continue
		}
		list = append(list, l)
	}
	return list
}

func TestBackupByRsync(t *testing.T) {
	tool(t, "rsync")
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		ident, gens := sharedTree(t, m, 4)
		s := beginStaging(t, ident, "halfway", smallGeneration(gens[0].ID, conversation(5, 500)))
		must(t, s.writePage(s.g.pages()[0], 0))
		backup := filepath.Join(m.dir, "backup")
		rsyncBackup(t, m.path, backup)
		wantSameTree(t, "the backup", inSeconds(treeOf(t, backup)), inSeconds(treeOf(t, m.path)))
		if got := names(t, filepath.Join(backup, "org--model", filepath.Base(ident))); len(got) != len(gens)+1 {
			t.Errorf("the backup has %q", got)
		}
		if got := changes(rsyncBackup(t, m.path, backup)); len(got) != 0 {
			t.Errorf("a second run changes:\n%s", strings.Join(got, "\n"))
		}
		must(t, os.RemoveAll(s.path()))

		// Neither a daemon that died nor a keeper that died changes what rsync sees.
		m.killDaemon()
		if got := changes(rsyncBackup(t, m.path, backup)); len(got) != 0 {
			t.Errorf("after the daemon was killed a run changes:\n%s", strings.Join(got, "\n"))
		}
		m.killKeeper()
		m.start()
		if got := changes(rsyncBackup(t, m.path, backup)); len(got) != 0 {
			t.Errorf("after a new mount a run changes:\n%s", strings.Join(got, "\n"))
		}

		// What is deleted goes from the backup; what shares pages stays as it is.
		rmSilently(t, filepath.Join(ident, gens[1].name()))
		rsyncBackup(t, m.path, backup)
		if got := names(t, filepath.Join(backup, "org--model", filepath.Base(ident))); len(got) != len(gens) || contains(got, gens[1].name()) {
			t.Errorf("after a removal the backup has %q", got)
		}
		for _, i := range []int{0, 2, 3} {
			must(t, checkGeneration(filepath.Join(backup, "org--model", filepath.Base(ident), gens[i].name()), gens[i]))
		}
	})
}

// vanished are rsync's exit codes when files went away while it ran: 24, and 23 if that happened between two looks at
// the same file. With -H it may also wait for ever for a file that has vanished: rsync 3.5 does so on a tmpfs as well,
// and --timeout makes that 30.
var vanished = []int{23, 24, 30}

// TestBackupUnderLoad: rsync beside publications and removals copies only whole generations, and says nothing worse
// than that something was deleted.
func TestBackupUnderLoad(t *testing.T) {
	rsync := tool(t, "rsync")
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("load", 2)
		ident := m.addIdentity(t, "model", id)
		backup := filepath.Join(m.dir, "backup")
		gens := map[string]generation{}
		for i := range 12 {
			g := smallGeneration(id, conversation(uint64(i%3), 400+100*i))
			gens[g.name()] = g
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for attempt := 0; ; attempt++ {
				for _, g := range gens {
					select {
					case <-done:
						return
					default:
					}
					dir := filepath.Join(ident, g.name())
					if _, err := os.Lstat(dir); err == nil {
						rmSilently(t, dir)
					} else if _, err := publishAs(ident, fmt.Sprintf("%d-%s", attempt, g.name()), g); err != nil {
						t.Errorf("publishing beside rsync: %v", err)
						return
					}
				}
			}
		})
		for range 6 {
			// rsync with -H can wait for ever when a hard-linked file vanishes, on any filesystem and in spite of --timeout.
			ctx, cancel := context.WithTimeout(t.Context(), patience/3)
			cmd := exec.CommandContext(ctx, rsync, "-aHAX", "--delete", "--timeout=10", m.path+"/", backup+"/")
			cmd.WaitDelay = time.Second
			out, err := cmd.CombinedOutput()
			hung := ctx.Err() != nil
			cancel()
			if hung {
				t.Logf("rsync hung and was ended:\n%s", tail(string(out)))
				continue
			}
			if exit, ok := err.(*exec.ExitError); err != nil && (!ok || !slices.Contains(vanished, exit.ExitCode())) {
				t.Errorf("rsync: %v\n%s", err, tail(string(out)))
			}
		}
		close(done)
		wg.Wait()
		rsyncBackup(t, m.path, backup)
		copied := filepath.Join(backup, "model", id.dir())
		for _, name := range names(t, copied) {
			if name == "identity.json" {
				continue
			}
			must(t, checkGeneration(filepath.Join(copied, name), gens[name]))
		}
	})
}
