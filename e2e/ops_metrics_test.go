package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// .ckptfs/metrics and --metrics-addr.

// metricFamilies are metrics by their names.
type metricFamilies map[string]*dto.MetricFamily

func parseMetrics(text []byte) (metricFamilies, error) {
	p := expfmt.NewTextParser(model.LegacyValidation)
	return p.TextToMetricFamilies(bytes.NewReader(text))
}

// value is that of the series of a metric with these labels ("tier=ram").
func (f metricFamilies) value(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	if f[name] == nil {
		t.Fatalf("there is no metric %s", name)
	}
series:
	for _, m := range f[name].Metric {
		have := map[string]bool{}
		for _, l := range m.Label {
			have[l.GetName()+"="+l.GetValue()] = true
		}
		for _, l := range labels {
			if !have[l] {
				continue series
			}
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue()
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount())
		}
		return m.Gauge.GetValue()
	}
	t.Fatalf("%s has no series with %q", name, labels)
	return 0
}

// fileMetrics reads .ckptfs/metrics.
func (m *mount) fileMetrics(t testing.TB) metricFamilies {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.path, ".ckptfs", "metrics"))
	must(t, err)
	f, err := parseMetrics(text)
	must(t, err)
	return f
}

// metricsURL is where a mount with --metrics-addr serves.
func (m *mount) metricsURL(t testing.TB) string {
	t.Helper()
	var config struct {
		Flags map[string]any `json:"flags"`
	}
	m.control(t, "config.json", &config)
	return fmt.Sprintf("http://%v", config.Flags["metrics-addr"])
}

// fetch asks once, on a connection of its own.
func fetch(url string) (code int, body string, err error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

func wantAnswer(t testing.TB, url string, code int, words string) {
	t.Helper()
	if c, body, err := fetch(url); err != nil || c != code || !strings.Contains(body, words) {
		t.Errorf("%s: %d %q %v, want %d %q", url, c, body, err, code, words)
	}
}

func TestMetrics(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--metrics-addr", ":0")
	url := m.metricsURL(t)
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("without a host it listens at %s", url)
	}
	ident, gens := sharedTree(t, m, 2)
	ask(t, ident, gens[1].Tokens)
	ask(t, ident, conversation(77, 500)) // a miss
	s := beginStaging(t, ident, "half", smallGeneration(gens[0].ID, conversation(30, 700)))
	wantErrno(t, "renaming a half", s.rename(), syscall.EBUSY)
	d, err := os.Open(filepath.Join(ident, gens[0].name()))
	must(t, err)
	defer d.Close()
	must(t, d.Sync())

	wantAnswer(t, url+"/healthz", 200, "ok")
	wantAnswer(t, url+"/readyz", 200, "ok")
	wantAnswer(t, url+"/nothing", 404, "")
	code, text, err := fetch(url + "/metrics")
	must(t, err)
	served, err := parseMetrics([]byte(text))
	if err != nil || code != 200 {
		t.Fatalf("%d, %v: %s", code, err, text)
	}
	for _, w := range []struct {
		want float64
		name string
		have []string
	}{
		{3, "ckptfs_generations_published_total", nil}, {3, "ckptfs_generations", nil}, {2, "ckptfs_models", nil},
		{2, "ckptfs_lookups_total", nil}, {1, "ckptfs_lookup_misses_total", nil}, {1, "ckptfs_lookup_hits_total", []string{"tier=ram"}},
		{1, "ckptfs_stagings", nil}, {1, "ckptfs_publish_busy_total", nil}, {1, "ckptfs_leases", []string{"kind=directory"}},
		{512 << 20, "ckptfs_tier_size_bytes", []string{"tier=ram"}}, {128, "ckptfs_stagings_limit", nil},
		{3, "ckptfs_publish_duration_seconds", nil}, {2, "ckptfs_lookup_duration_seconds", nil}, {1, "ckptfs_fsync_duration_seconds", nil},
		{4, "ckptfs_admission_wait_duration_seconds", nil}, {float64(len(gens[0].pages())), "ckptfs_write_back_duration_seconds", nil},
		{float64(len(gens[0].pages()) * smallPage), "ckptfs_disk_written_bytes_total", []string{"reason=durable"}},
		{0, "ckptfs_problem", []string{"kind=disk_failing"}}, {0, "ckptfs_daemon_restarts_total", nil},
	} {
		if got := served.value(t, w.name, w.have...); got != w.want {
			t.Errorf("%s %q is %v, want %v", w.name, w.have, got, w.want)
		}
	}
	file := m.fileMetrics(t)
	for name := range served {
		if file[name] == nil && !strings.HasPrefix(name, "promhttp_") {
			t.Errorf(".ckptfs/metrics does not have %s", name)
		}
	}
	lintMetrics(t, text)
	must(t, os.RemoveAll(s.path()))
}

// lintMetrics checks names, units and types by the rules of the ecosystem, and that there are not too many series.
func lintMetrics(t *testing.T, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "ckptfs_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if n := strings.Count(text, "\nckptfs_"); n > 300 {
		t.Errorf("%d series", n)
	}
}

// TestMetricsOverRestarts: nobody who asks is refused while one daemon follows another.
func TestMetricsOverRestarts(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--metrics-addr", "127.0.0.1:0")
	url := m.metricsURL(t) + "/metrics"
	for round := 1; round <= 2; round++ {
		m.killDaemon()
		_, text, err := fetch(url)
		for err != nil && !isRefused(err) { // the one that was killed may have taken the connection
			_, text, err = fetch(url)
		}
		must(t, err)
		f, err := parseMetrics([]byte(text))
		must(t, err)
		died := time.Unix(int64(f.value(t, "ckptfs_daemon_last_death_timestamp_seconds")), 0)
		if n := f.value(t, "ckptfs_daemon_restarts_total"); n != float64(round) || time.Since(died) > patience || time.Since(died) < -time.Second {
			t.Errorf("after %d deaths: %v restarts, the last death at %v", round, n, died)
		}
	}
	if r := ckptfs(t, "upgrade", m.path); r.code != 0 {
		t.Fatalf("upgrade: %s", r.errOut)
	}
	wantAnswer(t, url, 200, "ckptfs_problem{kind=\"daemon_died\"} 1")
	if r := ckptfs(t, "status", m.path); !strings.HasPrefix(r.out, "PROBLEM: the daemon died ") {
		t.Errorf("status begins with %q", strings.SplitN(r.out, "\n", 2)[0])
	}
}

func isRefused(err error) bool { return strings.Contains(err.Error(), "refused") }

// TestReady: not ready while the disk fails and while the mount stops, and ready again.
func TestReady(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0], "--metrics-addr", ":0", "--write-policy", "always")
	url := m.metricsURL(t)
	ident, gens := sharedTree(t, m, 1)
	disk := filepath.Join(m.state, "disk")
	must(t, os.Rename(disk, disk+".away"))
	m.expectWarn("")
	s := beginStaging(t, ident, "s", smallGeneration(gens[0].ID, conversation(30, 700)))
	s.complete(t)
	if err := s.rename(); err == nil {
		t.Error("it is published without a disk")
	}
	wantAnswer(t, url+"/readyz", 503, "cannot be written")
	wantAnswer(t, url+"/healthz", 200, "ok")
	must(t, os.Rename(disk+".away", disk))
	must(t, s.rename())
	wantAnswer(t, url+"/readyz", 200, "ok")

	beginStaging(t, ident, "unfinished", smallGeneration(gens[0].ID, conversation(31, 700)))
	must(t, m.cmd.Process.Signal(syscall.SIGTERM)) // it waits for the staging, some seconds
	eventually(t, "a mount that stops is not ready", func() error {
		if code, body, err := fetch(url + "/readyz"); err != nil || code != 503 {
			return fmt.Errorf("%d %q %v", code, body, err)
		}
		return nil
	})
	must(t, m.cmd.Process.Signal(syscall.SIGTERM)) // at once
	m.reap()
	m.start()
}

// TestMetricsAddrRefused: an address that is no address, or is taken, refuses the mount.
func TestMetricsAddrRefused(t *testing.T) {
	requireFUSE(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	m := newMount(t, modes[0])
	for addr, want := range map[string]int{"127.0.0.1:": 2, "somewhere": 2, ":99999": 2, taken.Addr().String(): 1} {
		r := ckptfs(t, "mount", "--state", m.state, "--l1-size", "64MiB", "--metrics-addr", addr, m.path)
		if r.code != want || !strings.Contains(r.errOut, "--metrics-addr") || strings.Contains(r.out, "mounted") {
			t.Errorf("%s: exit code %d, %s", addr, r.code, r.errOut)
		}
	}
	if left := m.mounts(); len(left) > 0 {
		t.Errorf("mounted all the same: %q", left)
	}
}
