// Package deploy has no code: it checks the files beside it against the binary that they start.
package deploy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
)

// binary is the ckptfs of this tree.
func binary(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "ckptfs")
	if out, err := exec.Command("go", "build", "-o", to, "ckptfs/cmd/ckptfs").CombinedOutput(); err != nil {
		t.Fatalf("building ckptfs: %v\n%s", err, out)
	}
	return to
}

// deployment is how a file has ckptfs run.
type deployment struct {
	args []string      // from "mount" to the mount point
	stop time.Duration // how long a stop may take
}

func deployments(t *testing.T) map[string]deployment {
	c, k := readCompose(t).Services["ckptfs"], readDaemonSet(t)
	u := readUnit(t, "ckptfs.service")
	start := strings.Fields(strings.ReplaceAll(u.one(t, "ExecStart"), "$CKPTFS_FLAGS", ""))
	return map[string]deployment{
		"ckptfs.service":  {start[1:], u.duration(t, "TimeoutStopSec")},
		"compose.yaml":    {c.Command, c.StopGracePeriod},
		"kubernetes.yaml": {k.container(t).Args, time.Duration(k.TerminationGracePeriodSeconds) * time.Second},
	}
}

func (d deployment) flag(name string) string {
	for _, a := range d.args {
		if value, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// TestFlags: the binary knows every flag, and takes its value.
func TestFlags(t *testing.T) {
	ckptfs := binary(t)
	accepts := func(args []string) error {
		out, err := exec.Command(ckptfs, append(slices.Clone(args), "--help")...).CombinedOutput()
		if err != nil {
			return errors.New(string(out))
		}
		return nil
	}
	if accepts([]string{"mount", "--no-such-flag"}) == nil || accepts([]string{"mount", "--l1-size=much"}) == nil {
		t.Fatal("flags are not checked")
	}
	for name, d := range deployments(t) {
		if err := accepts(d.args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if at := d.args[len(d.args)-1]; d.args[0] != "mount" || at != "/run/ckptfs/mnt" || d.flag("state") != "/var/lib/ckptfs" {
			t.Errorf("%s: runs ckptfs with %q", name, d.args)
		}
	}
}

// TestStopsAreLongEnough: whoever ends ckptfs waits longer than ckptfs may take.
func TestStopsAreLongEnough(t *testing.T) {
	for name, d := range deployments(t) {
		budget, err := time.ParseDuration(d.flag("shutdown-budget"))
		if err != nil || d.stop < budget+10*time.Second {
			t.Errorf("%s: a stop may take %v, with a budget of %v (%v)", name, d.stop, budget, err)
		}
	}
}

// TestMemory: pages in RAM are charged to the container; what is beside them needs some too.
func TestMemory(t *testing.T) {
	for name, limit := range map[string]string{
		"compose.yaml":    strings.Replace(readCompose(t).Services["ckptfs"].MemLimit, "g", "GiB", 1),
		"kubernetes.yaml": readDaemonSet(t).container(t).Resources.Limits["memory"] + "B",
	} {
		bytes, err := humanize.ParseBytes(limit)
		if err != nil {
			t.Fatal(err)
		}
		l1, err := humanize.ParseBytes(deployments(t)[name].flag("l1-size"))
		if err != nil || bytes < l1+l1/16+1<<30 {
			t.Errorf("%s: %s of memory for --l1-size %d (%v)", name, limit, l1, err)
		}
	}
}

// TestPropagation: mounts spread from ckptfs to the host and from there to engines, which have the directory above the
// mount, not the mount.
func TestPropagation(t *testing.T) {
	c := readCompose(t)
	for service, want := range map[string]string{"ckptfs": "rshared", "engine": "rslave"} {
		for _, v := range c.Services[service].Volumes {
			if v.Type != "bind" || v.Bind.Propagation != want || v.Source != v.Target {
				t.Errorf("compose.yaml: %s has %+v, want %s", service, v, want)
			}
			if service == "engine" && v.Target != "/run/ckptfs" {
				t.Errorf("compose.yaml: the engine has %s", v.Target)
			}
		}
	}
	if s := c.Services["ckptfs"]; !slices.Contains(s.CapAdd, "SYS_ADMIN") || !slices.Contains(s.Devices, "/dev/fuse") || s.PID != "host" {
		t.Errorf("compose.yaml: ckptfs has %+v", s)
	}
	k := readDaemonSet(t)
	for _, m := range k.container(t).VolumeMounts {
		if m.MountPropagation != "Bidirectional" || k.hostPath(m.Name) != m.MountPath {
			t.Errorf("kubernetes.yaml: ckptfs has %+v of %q", m, k.hostPath(m.Name))
		}
	}
	if !k.HostPID || !k.container(t).SecurityContext.Privileged {
		t.Errorf("kubernetes.yaml: hostPID %v, privileged %v", k.HostPID, k.container(t).SecurityContext.Privileged)
	}
	e := readPod(t)
	for _, m := range e.container(t).VolumeMounts {
		if m.MountPropagation != "HostToContainer" || e.hostPath(m.Name) != path.Dir("/run/ckptfs/mnt") {
			t.Errorf("kubernetes.yaml: the engine has %+v of %q", m, e.hostPath(m.Name))
		}
	}
}

// TestUnit: systemd takes it, the watchdog leaves the keeper time to do its part, and nothing gives the service a
// mount namespace of its own, in which its mount would stay.
func TestUnit(t *testing.T) {
	u := readUnit(t, "ckptfs.service")
	for _, option := range []string{"PrivateMounts", "PrivateTmp", "PrivateDevices", "ProtectSystem", "ProtectHome", "ProtectKernelTunables",
		"ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset", "ProtectHostname",
		"ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths", "TemporaryFileSystem", "RootDirectory", "MountFlags", "DynamicUser"} {
		if v := u[option]; v != nil {
			t.Errorf("%s=%q hides the mount from the host", option, v)
		}
	}
	if got := u.one(t, "Type"); got != "notify" {
		t.Errorf("Type=%s", got)
	}
	if dog := u.duration(t, "WatchdogSec"); dog < 2*30*time.Second { // --watchdog is 30 s
		t.Errorf("WatchdogSec=%v leaves the keeper no time", dog)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	text, err := os.ReadFile("ckptfs.service")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "ckptfs.service")
	text = bytes.ReplaceAll(text, []byte("/usr/local/bin/ckptfs"), []byte(binary(t)))
	if err := os.WriteFile(copied, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", copied).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestDockerfile: what the other files start is what the image has.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CGO_ENABLED=0", "FROM scratch", "COPY --from=build /ckptfs /usr/local/bin/ckptfs", `ENTRYPOINT ["/usr/local/bin/ckptfs"]`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
	probe := readDaemonSet(t).container(t).ReadinessProbe.Exec.Command
	health := readCompose(t).Services["ckptfs"].Healthcheck.Test[1:]
	for _, command := range [][]string{probe, health} {
		if !slices.Equal(command, []string{"/usr/local/bin/ckptfs", "status", "/run/ckptfs/mnt"}) {
			t.Errorf("the container is asked by %q", command)
		}
	}
}
