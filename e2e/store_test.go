package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The writing half of the protocol (contract section 3), with file calls only.

// addModel makes a model directory.
func (m *mount) addModel(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(m.path, name)
	must(t, os.Mkdir(dir, 0o755))
	return dir
}

// addIdentity makes a model, if it is not there, and an identity in it.
func (m *mount) addIdentity(t testing.TB, model string, id identity) string {
	t.Helper()
	dir := filepath.Join(m.path, model)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	name, err := identify(dir, spaced(id.Doc))
	must(t, err)
	if name != id.dir() {
		t.Fatalf(".identify answered %q, want %q", name, id.dir())
	}
	return filepath.Join(dir, name)
}

// identify asks .identify for the directory of a document.
func identify(model string, doc []byte) (string, error) {
	f, err := os.OpenFile(filepath.Join(model, ".identify"), os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Write(doc); err != nil {
		return "", err
	}
	line, err := readReply(f)
	return strings.TrimSuffix(line, "\n"), err
}

// readReply reads one reply of a transaction file to its end.
func readReply(f *os.File) (string, error) {
	var all []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		all = append(all, buf[:n]...)
		if n == 0 || err != nil {
			if errors.Is(err, io.EOF) || len(all) > 0 {
				err = nil
			}
			return string(all), err
		}
		if all[len(all)-1] == '\n' {
			return string(all), nil
		}
	}
}

// staging is one attempt to write a generation.
type staging struct {
	ident string // the identity's directory
	name  string
	g     generation
}

func (s staging) path() string { return filepath.Join(s.ident, ".staging", s.name) }

func (s staging) file(name string) string { return filepath.Join(s.path(), name) }

// begin makes the directory and writes tokens and manifest.
func (s staging) begin() error {
	if err := os.Mkdir(s.path(), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.file("tokens"), tokenBytes(s.g.Tokens), 0o644); err != nil {
		return err
	}
	return s.writeManifest(spaced(s.g.manifest()))
}

// writeManifest returns the first error of open, write and close.
func (s staging) writeManifest(doc []byte) error {
	return os.WriteFile(s.file("manifest.json"), doc, 0o644)
}

// plan is plan.json; a field that the contract does not name fails its parsing.
type plan struct {
	Generation string    `json:"generation"`
	Published  bool      `json:"published"`
	Missing    []missing `json:"missing"`
}

type missing struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

func (s staging) plan() (plan, error) {
	var p plan
	b, err := os.ReadFile(s.file("plan.json"))
	if err != nil {
		return p, err
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("plan.json: %w in %q", err, b)
	}
	if p.Missing == nil {
		return p, fmt.Errorf("plan.json has no list of missing pages: %q", b)
	}
	return p, nil
}

func (s staging) missing() ([]string, error) {
	p, err := s.plan()
	var list []string
	for _, m := range p.Missing {
		list = append(list, m.Path)
	}
	return list, err
}

// writePage creates one page, or returns an error for which EEXIST holds when it is there.
func (s staging) writePage(p page, copyNo int) error {
	if err := os.MkdirAll(filepath.Dir(s.file(p.path)), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(s.file(p.path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := writePage(f, p, copyNo); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// writeMissing writes the planned pages of one rank (of all with -1) and
// returns how many bytes that were. A page that is there by now is skipped.
func (s staging) writeMissing(rank, copyNo int) (int64, error) {
	p, err := s.plan()
	if err != nil {
		return 0, err
	}
	want := map[string]bool{}
	for _, m := range p.Missing {
		want[m.Path] = true
	}
	pages := s.g.pages()
	if rank >= 0 {
		pages = ofRank(pages, rank)
	}
	var written int64
	for _, pg := range pages {
		if !want[pg.path] {
			continue
		}
		err := s.writePage(pg, copyNo)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return written, err
		}
		written += pg.bytes
	}
	return written, nil
}

func (s staging) target() string { return filepath.Join(s.ident, s.g.name()) }

// rename is the publication.
func (s staging) rename() error { return syscall.Rename(s.path(), s.target()) }

// publishAs does the whole protocol and returns the bytes that it wrote.
func publishAs(ident, name string, g generation) (int64, error) {
	s := staging{ident: ident, name: name, g: g}
	if err := s.begin(); err != nil {
		return 0, err
	}
	n, err := s.writeMissing(-1, 0)
	if err != nil {
		return n, err
	}
	return n, s.rename()
}

// publish is publishAs where failure is not expected; it returns the generation's directory.
func publish(t testing.TB, ident string, g generation) string {
	t.Helper()
	if _, err := publishAs(ident, "put-"+g.name(), g); err != nil {
		t.Fatalf("publishing %s: %v", g.name(), err)
	}
	return filepath.Join(ident, g.name())
}

// beginStaging is begin where failure is not expected.
func beginStaging(t testing.TB, ident, name string, g generation) staging {
	t.Helper()
	s := staging{ident: ident, name: name, g: g}
	must(t, s.begin())
	return s
}

// complete writes all missing pages of a staging.
func (s staging) complete(t testing.TB) {
	t.Helper()
	_, err := s.writeMissing(-1, 0)
	must(t, err)
}

// reason reads the staging's error file.
func (s staging) reason(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(s.file("error"))
	must(t, err)
	return string(b)
}

func renameFlags(from, to string, flags uint) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
}
