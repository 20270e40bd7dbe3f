package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestUnitPrivileges: with no more privileges than the systemd unit leaves it, ckptfs does all that it does as root:
// passthrough, other users' files, restarts, the disk tier.
func TestUnitPrivileges(t *testing.T) {
	requireFUSE(t)
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip(err)
	}
	unit, err := os.ReadFile("../tools/deploy/ckptfs.service")
	must(t, err)
	set := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(string(unit))
	if set == nil || !strings.Contains(string(unit), "\nNoNewPrivileges=yes\n") {
		t.Fatal("the unit takes nothing away")
	}
	caps := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(set[1], "CAP_", "+"), " ", ","))
	m := newMount(t, modes[0], "--allow-other", "--write-policy=always")
	m.within = []string{"setpriv", "--no-new-privs", "--bounding-set=-all," + caps}
	m.start()
	if !strings.Contains(m.ready, "passthrough on") {
		t.Errorf("ready with %q", m.ready)
	}
	owner := newTenant(t, m, "hers", alice)
	other := newTenant(t, m, "his", bob)
	old := m.killDaemon()
	owner.mayNotTouch(t, "after a restart", other)
	must(t, m.servedByOther(old))
	owner.do(request{Op: "check", Path: owner.dir(), Gen: &owner.g})
	m.stop()
	m.start()
	owner.do(request{Op: "check", Path: owner.dir(), Gen: &owner.g})
	rmSilently(t, filepath.Dir(owner.ident))
}
