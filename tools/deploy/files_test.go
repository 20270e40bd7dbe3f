package deploy

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// What the tests look at in each kind of file.

// unit holds the settings of a systemd unit by name.
type unit map[string][]string

func readUnit(t *testing.T, file string) unit {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	u := unit{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			u[name] = append(u[name], value)
		}
	}
	return u
}

func (u unit) one(t *testing.T, name string) string {
	t.Helper()
	if len(u[name]) != 1 {
		t.Fatalf("%s is set to %q", name, u[name])
	}
	return u[name][0]
}

func (u unit) duration(t *testing.T, name string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.Replace(u.one(t, name), "min", "m", 1))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// compose is what is looked at of a compose file.
type compose struct {
	Services map[string]struct {
		Command         []string
		CapAdd          []string `yaml:"cap_add"`
		Devices         []string
		PID             string
		StopGracePeriod time.Duration `yaml:"stop_grace_period"`
		MemLimit        string        `yaml:"mem_limit"`
		Healthcheck     struct{ Test []string }
		Volumes         []struct {
			Type, Source, Target string
			Bind                 struct{ Propagation string }
		}
	}
}

func readCompose(t *testing.T) (c compose) {
	t.Helper()
	decodeAll(t, "compose.yaml", func(d *yaml.Decoder) error { return d.Decode(&c) })
	return c
}

// podSpec is what is looked at of a pod.
type podSpec struct {
	HostPID                       bool  `yaml:"hostPID"`
	TerminationGracePeriodSeconds int64 `yaml:"terminationGracePeriodSeconds"`
	Containers                    []podContainer
	Volumes                       []struct {
		Name     string
		HostPath struct{ Path string } `yaml:"hostPath"`
	}
}

type podContainer struct {
	Args            []string
	SecurityContext struct{ Privileged bool } `yaml:"securityContext"`
	Resources       struct{ Limits map[string]string }
	ReadinessProbe  struct {
		Exec struct{ Command []string }
	} `yaml:"readinessProbe"`
	VolumeMounts []struct {
		Name             string
		MountPath        string `yaml:"mountPath"`
		MountPropagation string `yaml:"mountPropagation"`
	} `yaml:"volumeMounts"`
}

func (p podSpec) container(t *testing.T) podContainer {
	t.Helper()
	if len(p.Containers) != 1 {
		t.Fatalf("%d containers", len(p.Containers))
	}
	return p.Containers[0]
}

func (p podSpec) hostPath(volume string) string {
	for _, v := range p.Volumes {
		if v.Name == volume {
			return v.HostPath.Path
		}
	}
	return ""
}

func readDaemonSet(t *testing.T) podSpec {
	t.Helper()
	var set struct {
		Spec struct{ Template struct{ Spec podSpec } }
	}
	kubernetesObject(t, "DaemonSet").decode(t, &set)
	return set.Spec.Template.Spec
}

func readPod(t *testing.T) podSpec {
	t.Helper()
	var pod struct{ Spec podSpec }
	kubernetesObject(t, "Pod").decode(t, &pod)
	return pod.Spec
}

type object struct{ yaml.Node }

func (o object) decode(t *testing.T, to any) {
	t.Helper()
	if err := o.Decode(to); err != nil {
		t.Fatal(err)
	}
}

// kubernetesObject finds the only object of a kind.
func kubernetesObject(t *testing.T, kind string) (found object) {
	t.Helper()
	n := 0
	decodeAll(t, "kubernetes.yaml", func(d *yaml.Decoder) error {
		var o object
		if err := d.Decode(&o.Node); err != nil {
			return err
		}
		var head struct {
			Kind       string
			APIVersion string `yaml:"apiVersion"`
		}
		o.decode(t, &head)
		if head.APIVersion == "" {
			t.Errorf("a %q has no apiVersion", head.Kind)
		}
		if head.Kind == kind {
			found, n = o, n+1
		}
		return nil
	})
	if n != 1 {
		t.Fatalf("kubernetes.yaml has %d of kind %s", n, kind)
	}
	return found
}

// decodeAll calls f for each document of a YAML file.
func decodeAll(t *testing.T, file string, f func(*yaml.Decoder) error) {
	t.Helper()
	text, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	d := yaml.NewDecoder(text)
	for {
		if err := f(d); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}
