// Package e2e tests the built ckptfs binary on real mounts, from other
// processes, against nothing but the contract: it imports no package of the
// filesystem and computes digests, names and page bytes with code of its own.
//
// Environment:
//
//	CKPTFS_REQUIRE_FUSE=1  a machine that cannot mount fails the tests instead of skipping them
//	CKPTFS_E2E_RACE=1      build the binary under test with the race detector
//	CKPTFS_E2E_BINARY=PATH test this binary instead of building one
//	CKPTFS_E2E_SEED=N      seed of everything random; printed by the tests that use it
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// suite is what TestMain prepares once for all tests.
var suite struct {
	dir    string // scratch for mount points and state directories; every uid may pass through
	binary string // the ckptfs under test
	self   string // a copy of this test program that every uid may run
	seed   uint64
}

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
	case posixRole: // a test in a process of its own
		os.Exit(m.Run())
	default:
		os.Exit(runRole(role))
	}
	os.Exit(runSuite(m))
}

func runSuite(m *testing.M) int {
	if err := prepareSuite(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	goroutines := runtime.NumGoroutine()
	code := m.Run()
	if code == 0 {
		if err := goroutinesBackTo(goroutines); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			code = 1
		}
	}
	// Only what is certainly no mount any more may be removed recursively.
	if left := mountsBelow(suite.dir); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "e2e: still mounted: %s\n", strings.Join(left, ", "))
		return 1
	}
	if code == 0 {
		os.RemoveAll(suite.dir)
	} else {
		fmt.Fprintf(os.Stderr, "e2e: logs and states are kept in %s\n", suite.dir)
	}
	return code
}

// goroutinesBackTo waits until no more than want goroutines are left.
func goroutinesBackTo(want int) error {
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > want {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines are left, %d at the start:\n%s",
				runtime.NumGoroutine(), want, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(pollEvery)
	}
	return nil
}

func prepareSuite() error {
	suite.seed = uint64(time.Now().UnixNano())
	if s := os.Getenv("CKPTFS_E2E_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("CKPTFS_E2E_SEED: %w", err)
		}
		suite.seed = n
	}
	dir, err := os.MkdirTemp("", "ckptfs-e2e-")
	if err != nil {
		return err
	}
	suite.dir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	suite.self = filepath.Join(dir, "e2e.test")
	if err := copyFile(self, suite.self, 0o755); err != nil {
		return err
	}
	suite.binary = filepath.Join(dir, "ckptfs")
	if prebuilt := os.Getenv("CKPTFS_E2E_BINARY"); prebuilt != "" {
		return copyFile(prebuilt, suite.binary, 0o755)
	}
	return buildBinary(suite.binary)
}

func buildBinary(to string) error {
	args := []string{"build", "-o", to}
	if os.Getenv("CKPTFS_E2E_RACE") == "1" {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "ckptfs/cmd/ckptfs")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building ckptfs: %w\n%s", err, out)
	}
	return nil
}

func copyFile(from, to string, perm os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// A new file each time: a running program's own file cannot be written.
	if err := os.WriteFile(to+".new", data, perm); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
