package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// `ckptfs clear`, `ckptfs drop --ram`, and the file .ckptfs/control that they write to.

// says wants an exit code, and words in what a command prints, wherever.
func says(t testing.TB, r cli, code int, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(r.out+r.errOut, w) {
			t.Errorf("it does not say %q", w)
		}
	}
	if r.code != code || t.Failed() {
		t.Fatalf("exit code %d, want %d:\n%s%s", r.code, code, r.out, r.errOut)
	}
}

func TestClear(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	ident, gens := sharedTree(t, m, 4)
	relative := strings.TrimPrefix(ident, m.path+"/")
	must(t, setXattr(filepath.Join(ident, gens[0].name()), "pin", "1"))
	page, err := os.Open(filepath.Join(ident, gens[1].name(), gens[1].pages()[4].path)) // a recurrent one, of its own
	must(t, err)
	defer page.Close()
	found, err := openFind(ident)
	must(t, err)
	defer found.Close()
	if _, err := converse(found, findRequest{Tokens: gens[2].Tokens}.bytes()); err != nil {
		t.Fatal(err)
	}
	s := beginStaging(t, ident, "half", smallGeneration(gens[0].ID, conversation(30, 700)))
	_, err = s.writeMissing(0, 0)
	must(t, err)

	r := ckptfs(t, "clear", m.path)
	holder := fmt.Sprintf("held by %s (pid %d)", commandOf(t), os.Getpid())
	says(t, r, 0, "removed 2 of 5 generations", "kept "+relative+"/"+gens[0].name()+" ", ": pinned",
		"kept "+relative+"/"+gens[1].name()+" ", holder, "page "+relative, "kept "+relative+"/"+gens[2].name()+" ", "find "+relative)
	if got := names(t, ident); !slices.Equal(got, sorted(gens[0].name(), gens[1].name(), gens[2].name(), "identity.json")) {
		t.Errorf("left is %q", got)
	}
	if got := names(t, filepath.Join(m.path, "second")); len(got) != 1 {
		t.Errorf("the other model has %q, want its identity", got)
	}
	says(t, ckptfs(t, "why", filepath.Join(ident, gens[3].name())), 0, "cleared by an operator")
	must(t, checkGeneration(filepath.Join(ident, gens[1].name()), gens[1]))

	// By force all or nothing.
	says(t, ckptfs(t, "clear", "--force", m.path, ident), 14, "removed 0 of 3", holder, "nothing was removed")
	must(t, found.Close())
	must(t, page.Close())
	held, err := os.Open(s.file("manifest.json"))
	must(t, err)
	says(t, ckptfs(t, "clear", "--force", m.path), 14, "kept "+relative+"/.staging/half ", holder)
	must(t, held.Close())
	eventually(t, "closed files are no leases", func() error {
		if r := ckptfs(t, "clear", "--force", m.path, relative); r.code != 0 || !strings.Contains(r.out, "removed 3 of 3 generations and 1 staging;") {
			return fmt.Errorf("exit code %d, %s%s", r.code, r.out, r.errOut)
		}
		return nil
	})
	if got := names(t, ident); len(got) != 1 || len(names(t, filepath.Join(ident, ".staging"))) != 0 {
		t.Errorf("left is %q", got)
	}
	f := m.fileMetrics(t)
	if used, reserved := f.value(t, "ckptfs_tier_used_bytes", "tier=ram"), f.value(t, "ckptfs_tier_reserved_bytes"); used+reserved != 0 {
		t.Errorf("%v bytes of RAM are used, %v reserved", used, reserved)
	}
	publish(t, ident, gens[0]) // engines go on

	says(t, ckptfs(t, "clear", m.path, "none"), 10, "there is no none")
	says(t, ckptfs(t, "clear", m.path, "a/b/c/d"), 2, "MODEL/IDENTITY")
	says(t, ckptfs(t, "clear", m.path, "/elsewhere"), 2, "not in "+m.path)
	says(t, ckptfs(t, "clear", t.TempDir()), 9)
}

func sorted(list ...string) []string {
	slices.Sort(list)
	return list
}

func TestDropRAM(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	ident, gens := sharedTree(t, m, 3)
	page, err := os.Open(filepath.Join(ident, gens[1].name(), gens[1].pages()[0].path))
	must(t, err)
	defer page.Close()
	resident := func() float64 { return m.fileMetrics(t).value(t, "ckptfs_tier_pages", "tier=ram") }
	all := resident()

	// A disk that does not take pages: nothing is lost for it.
	disk := filepath.Join(m.state, "disk")
	must(t, os.Rename(disk, disk+".away"))
	m.expectWarn("")
	says(t, ckptfs(t, "drop", "--ram", m.path), 1, "stays in RAM")
	must(t, os.Rename(disk+".away", disk))
	if n := resident(); n != all {
		t.Errorf("%v of %v pages are in RAM, and none on disk", n, all)
	}
	r := ckptfs(t, "drop", "--ram", m.path)
	says(t, r, 0, fmt.Sprintf("wrote %v pages", all), fmt.Sprintf("dropped %v of %v pages", all-1, all), "kept 1 page ",
		fmt.Sprintf("held by %s (pid %d)", commandOf(t), os.Getpid()))
	if n := resident(); n != 1 {
		t.Errorf("%v pages are in RAM, want the open one", n)
	}
	wantXattr(t, filepath.Join(ident, gens[2].name(), gens[2].pages()[4].path), "tier", "disk")
	for _, g := range gens {
		wantFound(t, ident, g.Tokens, g)
	}
	if n := len(names(t, ident)); n != len(gens)+1 {
		t.Errorf("%d names are left", n)
	}
	says(t, ckptfs(t, "drop", m.path), 2, "--ram")
}

// TestOrderOverRestart: who gives an order learns that the daemon was replaced, and gives it again.
func TestOrderOverRestart(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	ident, gens := sharedTree(t, m, 2)
	f, err := os.OpenFile(filepath.Join(m.path, ".ckptfs", "control"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	buf := make([]byte, 4096)
	_, err = f.Read(buf)
	wantErrno(t, "reading before anything was asked", err, syscall.EINVAL)
	for _, bad := range []string{"", "clear", `{"do":"nothing"}`, `{"do":"clear","pth":"x"}`} {
		if _, err := f.Write([]byte(bad + "\n")); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("the order %q: %v", bad, err)
		}
	}
	order := []byte(`{"do":"clear","path":"second"}` + "\n")
	_, err = f.Write(order)
	must(t, err)
	m.killDaemon()
	_, err = f.Read(buf)
	wantErrno(t, "reading from another daemon", err, syscall.ESTALE)
	_, err = f.Write(order)
	must(t, err)
	var report struct {
		Done  bool   `json:"done"`
		Error string `json:"error"`
		Clear struct{ Of, Removed int }
	}
	for !report.Done {
		line, err := readReply(f)
		must(t, err)
		if err := json.Unmarshal([]byte(line), &report); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
	}
	if report.Error != "" || report.Clear.Removed != report.Clear.Of {
		t.Errorf("%+v", report)
	}
	if n, err := f.Read(buf); n != 0 {
		t.Errorf("after the last report: %q, %v", buf[:n], err)
	}
	wantMissing(t, filepath.Join(m.path, "second", "00000500"))
	must(t, checkGeneration(filepath.Join(ident, gens[0].name()), gens[0]))
}
