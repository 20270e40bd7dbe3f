package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const testStatus = `{"version":"v1","mountpoint":"/mnt/ckpt","state_dir":"/var/lib/ckptfs","pid":12,"keeper_pid":11,
"uptime_seconds":273600,"restarts":2,"mode":{"passthrough":true,"ram_tier":"tmpfs","huge_pages":true,"resend":true},
"ram":{"size_bytes":4294967296,"used_bytes":1073741824,"reserved_bytes":1048576,"pages":168},
"models":1,"identities":2,"generations":3,"generations_max":64,"stagings":1,"stagings_max":128,"handles":{"open":5,"max":65536,"pages":4,"find":1},
"leases":{"pages":4,"directories":0,"finds":1,"stagings":2},"files":{"open":30,"max":1024},
"counters":{"finds":7,"evictions":0},"a_new_field":{}%s}`

func statusOf(t *testing.T, more string) (out string) {
	t.Helper()
	mount := t.TempDir()
	writeTestFile(t, filepath.Join(mount, ".ckptfs", "status.json"), strings.Replace(testStatus, "%s", more, 1))
	code, out, errOut := runTest(t, "status", mount)
	if code != exitOK || errOut != "" {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	return out
}

func TestStatus(t *testing.T) {
	out := statusOf(t, "")
	for _, want := range []string{
		"mount      /mnt/ckpt, ckptfs v1, up 3d4h\n", "daemon 12, keeper 11, 2 restarts, 30 of 1024 descriptors\n", "bypass the daemon, own tmpfs, huge pages, survives crashes",
		"1.0 GiB of 4.0 GiB (25%), 168 pages, 1.0 MiB reserved", "disk       none", "3 of 64 generations in 2 identities of 1 model; 0 pinned\n", "1 of 128 stagings\n",
		"5 of 65536 handles; leases: 4 pages, 0 directories, 1 lookups, 2 stagings\n", "finds                              7",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the table does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "evictions") || strings.Contains(out, "PROBLEM") {
		t.Errorf("the table shows what is nothing:\n%s", out)
	}
}

func TestStatusLeadsWithProblems(t *testing.T) {
	out := statusOf(t, `,"problems":["disk: 3 write errors"]`)
	if !strings.HasPrefix(out, "PROBLEM: disk: 3 write errors\n") {
		t.Errorf("the table begins otherwise:\n%s", out)
	}
}

func TestStatusFitsAScreen(t *testing.T) {
	counters := make(map[string]int64)
	for _, a := range "abcdefghij" {
		for _, b := range "abcdefghij" {
			counters["counter_"+string(a)+string(b)] = 1 << 30
		}
	}
	var b strings.Builder
	if err := writeStatus(&b, mountStatus{Counters: counters}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) > 22 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	if last := lines[len(lines)-1]; last != "and 84 more counters; --json lists all" {
		t.Errorf("the last line is %q", last)
	}
}

func TestStatusJSONAndNoMount(t *testing.T) {
	mount := t.TempDir()
	if code, _, errOut := runTest(t, "status", mount); code != exitNotMounted || !strings.Contains(errOut, mount) {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
	writeTestFile(t, filepath.Join(mount, ".ckptfs", "status.json"), testStatus)
	if code, out, _ := runTest(t, "status", "--json", mount); code != exitOK || out != testStatus {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
}
