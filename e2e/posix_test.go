package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// go-fuse's own conformance tests, where they make sense. They are written for
// a tree in which any name can be created anywhere. Here only models and
// stagings can be named freely, so what makes files of its own cannot run; the
// behaviour that such a test is after is tested elsewhere in this package
// with pages, as the second column says.

// posixRuns are the tests that apply, and where they are run.
var posixRuns = map[string][]string{
	"MkdirRmdir": {"root", "staging area", "staging"},
	"Tmpfile":    {"root", "staging area", "staging"}, // must be refused in the way that this test skips
}

// posixDoesNotApply says of every other test why it cannot run as written.
var posixDoesNotApply = map[string]string{
	"AppendWrite":                "creates a file of a free name; appending to a page: TestPosixLike",
	"DirSeek":                    "creates 168 files of free names; cookies and seeking: TestDirectoryCookies",
	"DirectIO":                   "creates a file of a free name; O_DIRECT: TestPosixLike, TestReadingWays",
	"Fallocate":                  "creates a file of a free name; fallocate: TestWaysToWrite, TestPosixLike",
	"FallocateKeepSize":          "creates a file of a free name; fallocate: TestPosixLike",
	"FcntlFlockLocksFile":        "creates a file of a free name, and go-fuse itself leaves it out; locks: TestPosixLike",
	"FcntlFlockSetLk":            "creates a file of a free name; locks: TestPosixLike",
	"FdLeak":                     "creates a file of a free name; every mount is checked for open files at its end",
	"FileBasic":                  "creates a file of a free name; TestPosixLike",
	"FileLarge":                  "creates a file of a free name; TestWaysToWrite, TestReadingWays",
	"FstatDeleted":               "creates files of free names; fstat after unlink: TestPosixLike",
	"Link":                       "links are made to pages of equal content only: TestLink",
	"LinkUnlinkRename":           "links are made to pages of equal content only: TestLink",
	"LseekEnxioCheck":            "creates a file of a free name; TestBlocksAndHoles",
	"LseekHoleSeeksToEOF":        "creates a file of a free name; TestBlocksAndHoles",
	"NlinkZero":                  "replaces a file by rename; link counts after removal: TestPosixLike",
	"OpenAt":                     "creates files in a directory that it renames; handles through rename: TestRenameReaders",
	"OpenSymlinkRace":            "there are no symlinks: TestRefused; go-fuse itself leaves it out",
	"ParallelFileOpen":           "creates a file of a free name; several writers of a page: TestWaysToWrite",
	"ReadDirBasic":               "creates files of free names; listings: TestDotNames, TestListing",
	"ReadDirConsistency":         "creates files of free names; listings: TestListing, TestDirectoryCookies",
	"RenameOpenDir":              "renames a directory onto another, which is refused: TestRenamePublished",
	"RenameOverwriteDestExist":   "creates files of free names; rename onto a page: TestScratchNames",
	"RenameOverwriteDestNoExist": "creates files of free names; rename to a page: TestScratchNames",
	"SetattrSymlink":             "there are no symlinks: TestRefused",
	"SymlinkReadlink":            "there are no symlinks: TestRefused",
	"TruncateFile":               "creates a file of a free name; truncation of a page being written: TestWaysToWrite",
	"TruncateNoFile":             "creates a file of a free name; TestPosixLike",
	"XAttr":                      "creates a file of a free name; only the attributes that ckptfs defines exist",
	"XAttrLarge":                 "creates a file of a free name; only the attributes that ckptfs defines exist",
}

const posixRole = "posix"

// TestPosixChild runs the tests named in its environment; TestPosix starts it
// in a process of its own.
func TestPosixChild(t *testing.T) {
	if os.Getenv(roleEnv) != posixRole {
		t.Skip("TestPosix runs this in another process")
	}
	for _, name := range strings.Split(os.Getenv("CKPTFS_E2E_POSIX"), ",") {
		t.Run(name, func(t *testing.T) { posixtest.All[name](t, os.Getenv("CKPTFS_E2E_DIR")) })
	}
}

func TestPosix(t *testing.T) {
	for name := range posixtest.All {
		if _, ok := posixDoesNotApply[name]; !ok && posixRuns[name] == nil {
			t.Errorf("posixtest has %s: say where it runs, or why it does not apply", name)
		}
	}
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("posix", 1)
		ident := m.addIdentity(t, "model", id)
		s := staging{ident: ident, name: "s"}
		must(t, os.Mkdir(s.path(), 0o755))
		must(t, os.MkdirAll(s.file("rank-0"), 0o755))
		places := map[string]string{"root": m.path, "staging area": filepath.Join(ident, ".staging"), "staging": s.file("rank-0")}
		byPlace := map[string][]string{}
		for name, list := range posixRuns {
			for _, place := range list {
				byPlace[place] = append(byPlace[place], name)
			}
		}
		for place, tests := range byPlace {
			sort.Strings(tests)
			t.Run(place, func(t *testing.T) {
				before := strings.Join(names(t, places[place]), " ")
				cmd := exec.Command(suite.self, "-test.run=^TestPosixChild$", "-test.v")
				cmd.Env = append(os.Environ(), roleEnv+"="+posixRole,
					"CKPTFS_E2E_POSIX="+strings.Join(tests, ","), "CKPTFS_E2E_DIR="+places[place])
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				if after := strings.Join(names(t, places[place]), " "); after != before {
					t.Errorf("left behind: %q, before: %q", after, before)
				}
			})
		}
		must(t, os.RemoveAll(s.path()))
	})
}
