package fusefs

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/evict"
	"ckptfs/index"
)

// notMeasured are numbers of the status that are no metrics: who the processes
// are, what the start time tells, and lists.
var notMeasured = []string{"PID", "KeeperPID", "UptimeSeconds", "Writing"}

// TestEveryNumberIsAMetric changes each number and each switch of the status in
// turn: some metric must change with it.
func TestEveryNumberIsAMetric(t *testing.T) {
	fs := &FS{tiers: &evict.Tiers{}, idx: new(index.Index)}
	fs.counters = fs.counterTable()
	at := time.Unix(1000, 0)
	s := Status{Started: at, LastDeathAt: &at, Counters: map[string]int64{}}
	measures := fs.measures()
	values := func() (list []float64) {
		for _, m := range measures {
			list = append(list, m.value(&s))
		}
		return list
	}
	changes := func(what string, change func()) {
		before := values()
		if change(); slices.Equal(values(), before) {
			t.Errorf("%s of the status is no metric", what)
		}
	}
	eachNumber(reflect.ValueOf(&s).Elem(), "", func(path string, v reflect.Value) {
		changes(path, func() {
			switch {
			case v.Kind() == reflect.Bool:
				v.SetBool(!v.Bool())
			case v.CanInt():
				v.SetInt(v.Int() + 7)
			default:
				v.SetUint(v.Uint() + 7)
			}
		})
	})
	changes("Started", func() { s.Started = s.Started.Add(time.Second) })
	changes("LastDeathAt", func() { later := at.Add(time.Second); s.LastDeathAt = &later })
	for _, c := range fs.counters {
		if c.metric != "" {
			changes("the counter "+c.name, func() { s.Counters[c.name]++ })
		}
	}
	for _, kind := range problemKinds() {
		changes("a problem", func() { s.problems = []problem{{kind: kind}} })
	}
}

// eachNumber calls f for every number and switch of a struct.
func eachNumber(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		field, name := v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, ".")
		switch {
		case !v.Type().Field(i).IsExported() || slices.Contains(notMeasured, name) || field.Type() == reflect.TypeFor[time.Time]():
		case field.Kind() == reflect.Struct:
			eachNumber(field, name, f)
		case field.Kind() == reflect.Bool || field.CanInt() || field.CanUint():
			f(name, field)
		}
	}
}

// TestCounterNames: a name of the status, a series of a metric, once each; sums
// have neither help nor metric.
func TestCounterNames(t *testing.T) {
	fs := &FS{tiers: &evict.Tiers{}, idx: new(index.Index)}
	seen := map[string]bool{}
	for _, c := range fs.counterTable() {
		series := c.metric
		for _, k := range slices.Sorted(maps.Keys(c.labels)) {
			series += " " + k + "=" + c.labels[k]
		}
		if seen[c.name] || c.metric != "" && seen[series] {
			t.Errorf("%s is there twice", c.name)
		}
		seen[c.name], seen[series] = true, true
		if (c.metric == "") != (c.help == "") || c.metric != "" && !strings.HasSuffix(c.metric, "_total") {
			t.Errorf("%s as %q, %q", c.name, c.metric, c.help)
		}
		if c.value() != 0 {
			t.Errorf("%s does not begin at 0", c.name)
		}
	}
	reasons, names := retireReasons()
	if len(reasons) != len(names) || len(names) > len(fs.count.retired) {
		t.Errorf("%d reasons, %d names, %d counters", len(reasons), len(names), len(fs.count.retired))
	}
}
