package fusefs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fusefs/client"
	"ckptfs/index"
)

const (
	countedPages = 12
	countedBytes = 64 << 10
)

// TestClient is no test: it is the client process of the others.
func TestClient(t *testing.T) {
	step := os.Getenv(clientEnv)
	if step == "" {
		t.Skip("the client process of other tests")
	}
	args := flag.Args()
	if err := clientSteps[step](args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // before package testing prints
}

var clientSteps = map[string]func(args []string) error{
	"stage": func(args []string) error { // MOUNT: makes a staging and the first page, prints its directory and plan
		dir, err := client.Identify(context.Background(), args[0], "model", testIdentity(1))
		if err != nil {
			return err
		}
		s, err := client.Stage(context.Background(), dir, client.StageOptions{
			Name: "s", Manifest: testManifest(countedPages, countedBytes), Tokens: make([]uint32, countedPages*testPageTokens),
		})
		if err != nil {
			return err
		}
		if err := writePage(filepath.Join(s.Dir(), client.PagePath(0, "a", 0))); err != nil {
			return err
		}
		fmt.Printf("%s\n%s\n", s.Dir(), filepath.Join(dir, s.Generation()))
		return s.Close()
	},
	"write": func(args []string) error { // DIR: writes the other pages, prints how long it took in seconds
		began := time.Now()
		for p := 1; p < countedPages; p++ {
			if err := writePage(filepath.Join(args[0], client.PagePath(0, "a", p))); err != nil {
				return err
			}
		}
		fmt.Print(int(time.Since(began) / time.Second))
		return nil
	},
	"gone": func(args []string) error { // PATH: nothing may be there
		if _, err := os.Lstat(args[0]); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there: %v", args[0], err)
		}
		return nil
	},
	"list": func(args []string) error { // DIR: as ls -l does, prints how many names there are
		entries, err := os.ReadDir(args[0])
		for _, e := range entries {
			if _, serr := os.Lstat(filepath.Join(args[0], e.Name())); serr != nil {
				return serr
			}
		}
		fmt.Print(len(entries))
		return err
	},
	"find": func(args []string) error { // IDENTITY: looks 200,000 tokens up, which begin with what is published
		lease, err := client.Find(context.Background(), args[0], make([]uint32, 200_000), client.FindOptions{})
		if err != nil {
			return err
		}
		fmt.Print(lease.Reply.Generation)
		return lease.Close()
	},
	"rename": func(args []string) error { return os.Rename(args[0], args[1]) },
	"read": func(args []string) error { // DIR: opens, reads and closes all pages
		buffer := make([]byte, countedBytes)
		for p := range countedPages {
			if err := client.ReadPage(filepath.Join(args[0], client.PagePath(0, "a", p)), buffer); err != nil {
				return err
			}
		}
		return nil
	},
}

func writePage(path string) error {
	fd, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fd.Write(make([]byte, countedBytes)); err != nil {
		return err
	}
	return fd.Close()
}

const testPageTokens = 256

func testIdentity(world int) []byte {
	b, _ := json.Marshal(map[string]any{
		"schema_version": 1, "target_revision": strings.Repeat("ab", 20), "draft_revision": "", "source_revision": strings.Repeat("cd", 20),
		"layout": map[string]any{"x": 1}, "parallel": map[string]any{"world_size": world},
	})
	return b
}

// testManifest has n attention pages per rank.
func testManifest(n int, pageBytes int64) []byte {
	positions := make([]int, n)
	for i := range positions {
		positions[i] = i
	}
	b, _ := json.Marshal(client.Manifest{
		SchemaVersion: 2, Kind: client.KindPrompt, Request: "r", NumTokens: n * testPageTokens,
		PageGroups: []client.PageGroup{{Name: "a", Role: client.RoleAttention, PageTokens: testPageTokens, PageBytes: pageBytes, Positions: positions}},
	})
	return b
}

// TestRequestsPerPage asserts what the kernel asks for each page. Times move
// with the machine; these do not.
func TestRequestsPerPage(t *testing.T) {
	c, mount := mountCounting(t)
	lines := strings.Split(asClient(t, "stage", mount), "\n")
	staging, generation := lines[0], lines[1]
	if reason := c.backing.reason(); reason != "" {
		t.Skipf("passthrough is not to be had: %s", reason)
	}
	const n = countedPages - 1

	c.settle(t)
	seconds, err := strconv.Atoi(asClient(t, "write", staging))
	if err != nil {
		t.Fatal(err)
	}
	got := c.await(t, "RELEASE", n)
	// The kernel drops a directory's attributes when a file is made in it, so it
	// asks for those of the group once a page; those of the path above once a second.
	if least, most := n, n+8*(seconds+2); got["GETATTR"] < least || got["GETATTR"] > most {
		t.Errorf("%d GETATTR for %d pages, want %d to %d", got["GETATTR"], n, least, most)
	}
	expect(t, "writing", got, map[string]int{"LOOKUP": n, "CREATE": n, "GETXATTR": n, "WRITE": 0, "FLUSH": 0, "READ": 0, "RELEASE": n})

	asClient(t, "rename", staging, generation)
	asClient(t, "read", generation) // the kernel learns the names
	c.await(t, "RELEASE", countedPages)
	c.reset()
	asClient(t, "read", generation)
	got = c.await(t, "RELEASE", countedPages)
	expect(t, "reading", got, map[string]int{"LOOKUP": 0, "GETATTR": 0, "OPEN": countedPages, "READ": 0, "FLUSH": 0, "RELEASE": countedPages})
	if copied := c.FS.count.bytesReadOrdinary.Load(); copied != 0 {
		t.Errorf("%d bytes of pages went through the daemon, want none", copied)
	}
}

// TestWithoutEpochs: a kernel that cannot be told of all names at once believes none that may go by itself.
func TestWithoutEpochs(t *testing.T) {
	c, mount := mountCounting(t, func(fs *FS) {
		if !fs.notify.epochs {
			t.Log("this kernel is one")
		}
		fs.notify.epochs = false
	})
	lines := strings.Split(asClient(t, "stage", mount), "\n")
	staging, generation := lines[0], lines[1]
	asClient(t, "write", staging)
	asClient(t, "rename", staging, generation)
	asClient(t, "read", generation) // the kernel learns the names
	g := c.idx.Model("model").Identities(0, 1)[0].Generation(filepath.Base(generation))
	if err := c.retireServerSide([]*index.Generation{g}, "for a test"); err != nil {
		t.Fatal(err)
	}
	asClient(t, "gone", generation)
	asClient(t, "gone", filepath.Join(generation, "manifest.json"))
}

func expect(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	for op, n := range want {
		if got[op] != n {
			t.Errorf("%s: %d %s, want %d (all: %v)", what, got[op], op, n, got)
		}
	}
}

// TestRequestsPerFind: a lookup is three round trips, whatever the length of the
// request.
func TestRequestsPerFind(t *testing.T) {
	c, mount := mountCounting(t)
	lines := strings.Split(asClient(t, "stage", mount), "\n")
	staging, generation := lines[0], lines[1]
	asClient(t, "write", staging)
	asClient(t, "rename", staging, generation)
	identity, name := filepath.Split(generation)
	asClient(t, "find", identity) // the kernel learns the names
	c.settle(t)
	if got := asClient(t, "find", identity); got != name {
		t.Errorf("the lookup found %q, want %q", got, name)
	}
	expect(t, "lookup", c.await(t, "RELEASE", 1), map[string]int{"LOOKUP": 0, "OPEN": 1, "WRITE": 1, "READ": 1, "FLUSH": 0, "RELEASE": 1})
}

// TestRequestsPerListing: names come with their attributes, so that ls -l asks
// for nothing more, however many there are.
func TestRequestsPerListing(t *testing.T) {
	c, mount := mountCounting(t)
	const n = 160 // more than one request of the listing
	k := &rawClient{t: t, fs: c.FS}
	for i := range n {
		k.publish(uint32(i))
	}
	identity := filepath.Join(mount, "m", c.idx.Model("m").Identities(0, 1)[0].Name)
	c.reset()
	if got := asClient(t, "list", identity); got != strconv.Itoa(n+1) {
		t.Errorf("%s names, want %d and identity.json", got, n)
	}
	expect(t, "listing", c.await(t, "LOOKUP", 0), map[string]int{"LOOKUP": 3, "GETATTR": 1}) // the model, the identity, identity.json
}

// TestListingReadsNoContents: the attributes of a generation are in memory; its
// contents are read for those of what is in it alone.
func TestListingReadsNoContents(t *testing.T) {
	cfg := testConfig(t, -1, false)
	fs, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	nodes := (&rawClient{t: t, fs: fs}).publish(1)
	if err := fs.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.FreshMount = false
	fs = quietFSOf(t, cfg) // it has read nothing yet
	contentsAfter := func(n nodeID) (cached int) {
		var out fuse.Attr
		if _, err := fs.getAttr(n, &out); err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		countEntries(reflect.ValueOf(fs.idx), "", map[uintptr]bool{}, counts)
		return counts[".contents.mu.byID"]
	}
	if n := contentsAfter(nodes[0]); n != 0 {
		t.Errorf("the attributes of a generation: the contents of %d were read", n)
	}
	if n := contentsAfter(nodes[1]); n != 1 {
		t.Errorf("the attributes of a manifest: the contents of %d are kept, want 1", n)
	}
}
