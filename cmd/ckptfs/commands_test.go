package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// runTest runs the command line in this process and returns the exit code and what was written.
func runTest(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), commands(), args, streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestHelpListsCommandsAndExitCodes(t *testing.T) {
	code, out, _ := runTest(t, "help")
	if code != exitOK {
		t.Fatalf("exit code %d, want 0", code)
	}
	for _, c := range commands() {
		if c.hidden == strings.Contains(out, "\n  "+c.name+" ") {
			t.Errorf("command %q: hidden is %v, and help says\n%s", c.name, c.hidden, out)
		}
	}
	if !strings.Contains(out, "exit codes:") {
		t.Errorf("help does not list the exit codes")
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range commands() {
		if c.hidden {
			continue
		}
		code, out, errOut := runTest(t, c.name, "--help")
		if code != exitOK || !strings.HasPrefix(out, "usage: ckptfs "+c.name) {
			t.Errorf("ckptfs %s --help: exit code %d, stdout %q, stderr %q", c.name, code, out, errOut)
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, args := range [][]string{{}, {"no-such-command"}, {"version", "--no-such-flag"}, {"version", "extra"}} {
		code, out, errOut := runTest(t, args...)
		if code != exitUsage || out != "" || errOut == "" {
			t.Errorf("ckptfs %q: exit code %d, stdout %q, stderr %q", args, code, out, errOut)
		}
	}
}

func TestExitCodesAreDistinctAndDocumented(t *testing.T) {
	for i, e := range exitCodes {
		if e.code != i || e.meaning == "" {
			t.Errorf("exit code %d is documented at place %d as %q", e.code, i, e.meaning)
		}
	}
	if got := exitCodeOf(withCode(exitInUse, context.Canceled)); got != exitInUse {
		t.Errorf("exitCodeOf = %d, want %d", got, exitInUse)
	}
}
