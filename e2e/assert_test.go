package e2e

import (
	"errors"
	"io/fs"
	"os"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds every wait: reached only when something is broken.
	patience = 60 * time.Second
	// pollEvery is the pause between two looks at a condition that nothing announces.
	pollEvery = 5 * time.Millisecond
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErrno fails the test unless err is errno; 0 means no error.
func wantErrno(t testing.TB, what string, err error, errno syscall.Errno) {
	t.Helper()
	if got := errnoOf(err); got != errno {
		t.Errorf("%s: got %s (%v), want %s", what, errnoName(got), err, errnoName(errno))
	}
}

// wantOneOf is wantErrno where the contract leaves a choice.
func wantOneOf(t testing.TB, what string, err error, errnos ...syscall.Errno) {
	t.Helper()
	for _, e := range errnos {
		if errnoOf(err) == e {
			return
		}
	}
	t.Errorf("%s: got %s (%v), want one of %v", what, errnoName(errnoOf(err)), err, errnos)
}

// errnoOf returns the errno within err, 0 for nil, and EIO's impossible
// neighbour -1 for an error that carries none.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return ^syscall.Errno(0)
}

func errnoName(e syscall.Errno) string {
	switch e {
	case 0:
		return "success"
	case ^syscall.Errno(0):
		return "an error without errno"
	}
	return e.Error()
}

// eventually polls until f returns nil.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	var err error
	if !waitFor(patience, func() bool { err = f(); return err == nil }) {
		t.Fatalf("%s: not within %v: %v", what, patience, err)
	}
}

func waitFor(limit time.Duration, f func() bool) bool {
	deadline := time.Now().Add(limit)
	for !f() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pollEvery)
	}
	return true
}

// names lists a directory, sorted.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	sort.Strings(list)
	return list
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func wantMissing(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s should not be there: %v", path, err)
	}
}

func stat(t testing.TB, path string) *syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	return &st
}

// wantSentence fails the test unless text is one line that says something.
func wantSentence(t testing.TB, what, text string) {
	t.Helper()
	text = strings.TrimSuffix(text, "\n")
	if len(strings.Fields(text)) < 3 || strings.Contains(text, "\n") {
		t.Errorf("%s should be one sentence: %q", what, text)
	}
}

// tail returns the end of a log that would be too long to print.
func tail(s string) string {
	const keep = 8 << 10
	if len(s) > keep {
		return "…" + s[len(s)-keep:]
	}
	return s
}
