package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// tools/monitoring against the metrics that a daemon exports.

const monitoring = "../tools/monitoring"

// dashboardExprs are the PromQL expressions of the Grafana dashboard.
func dashboardExprs(t testing.TB) (exprs []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	must(t, err)
	var dash struct {
		Templating struct {
			List []struct {
				Query json.RawMessage `json:"query"`
			} `json:"list"`
		} `json:"templating"`
		Panels []struct {
			Title   string `json:"title"`
			Type    string `json:"type"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	must(t, json.Unmarshal(raw, &dash))
	for _, p := range dash.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	for _, v := range dash.Templating.List {
		var q struct {
			Query string `json:"query"`
		}
		if json.Unmarshal(v.Query, &q) == nil && q.Query != "" {
			exprs = append(exprs, strings.Split(strings.TrimPrefix(q.Query, "label_values("), ", ")[0])
		}
	}
	return exprs
}

// alertExprs are the expressions of the alert rules.
func alertExprs(t testing.TB) (exprs []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(monitoring, "alerts.yml"))
	must(t, err)
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	d := yaml.NewDecoder(strings.NewReader(string(raw)))
	d.KnownFields(true)
	must(t, d.Decode(&rules))
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("a rule that says too little: %+v", r)
			}
			exprs = append(exprs, r.Expr)
		}
	}
	return exprs
}

var (
	// noMetric is what may stand in an expression beside names of metrics: strings, matchers, ranges, label lists,
	// functions, variables, numbers.
	noMetric    = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|[a-zA-Z_]\w*\s*\(|\$\w+|\b\d[\w.]*`)
	identifier  = regexp.MustCompile(`[a-zA-Z_:][\w:]*`)
	promKeyword = []string{"and", "or", "unless", "bool", "offset", "sum", "avg", "min", "max", "count"}
)

// metricsOf lists the metrics that an expression uses.
func metricsOf(expr string) (names []string) {
	rest := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, " ") // a string may have brackets in it
	for _, name := range identifier.FindAllString(noMetric.ReplaceAllString(rest, " "), -1) {
		if !slices.Contains(promKeyword, name) {
			names = append(names, name)
		}
	}
	return names
}

func TestMetricsOfAnExpression(t *testing.T) {
	for expr, want := range map[string]string{
		`up{job="ckptfs"} == 0`: "up",
		`histogram_quantile(0.99, sum by (le, job) (rate(a_seconds_bucket{x="}y{"}[10m]))) > 1e3`: "a_seconds_bucket",
		`sum(a{i=~"$i"}) / on (job) b offset 5m and c_total > 2 or time() - d < 600`:              "a b c_total d",
	} {
		if got := strings.Join(metricsOf(expr), " "); got != want {
			t.Errorf("%s uses %q, want %q", expr, got, want)
		}
	}
}

// unknownMetrics are those of the expressions that the daemon does not export.
func unknownMetrics(f metricFamilies, exprs []string) (unknown []string) {
	exported := map[string]bool{"up": true} // Prometheus' own
	for name, family := range f {
		exported[name] = true
		if family.GetType().String() == "HISTOGRAM" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				exported[name+suffix] = true
			}
		}
	}
	for _, expr := range exprs {
		names := metricsOf(expr)
		if len(names) == 0 {
			unknown = append(unknown, "none in "+expr)
		}
		for _, name := range names {
			if !exported[name] {
				unknown = append(unknown, name+" in "+expr)
			}
		}
	}
	return unknown
}

// TestDashboardAndAlerts: they use what the daemon exports, by the label values that it has.
func TestDashboardAndAlerts(t *testing.T) {
	requireFUSE(t)
	m := mountFS(t, modes[0])
	text, err := os.ReadFile(filepath.Join(m.path, ".ckptfs", "metrics"))
	must(t, err)
	f, err := parseMetrics(text)
	must(t, err)
	exprs := append(dashboardExprs(t), alertExprs(t)...)
	if len(exprs) < 50 {
		t.Errorf("only %d expressions were found", len(exprs))
	}
	for _, u := range unknownMetrics(f, exprs) {
		t.Error(u)
	}
	for _, match := range regexp.MustCompile(`(kind|tier|reason|level)="(\w+)"`).FindAllString(strings.Join(exprs, "\n"), -1) {
		if !strings.Contains(string(text), match) {
			t.Errorf("no series has %s", match)
		}
	}
	if u := unknownMetrics(f, []string{"rate(ckptfs_lookups_totals[5m])", "1 + 1"}); len(u) != 2 {
		t.Errorf("a name that is none is not found: %q", u)
	}
}
