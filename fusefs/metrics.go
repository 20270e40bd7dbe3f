package fusefs

import (
	"bytes"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"ckptfs/evict"
)

// metricPrefix begins the names of all metrics but those that every Go program
// and every process has.
const metricPrefix = "ckptfs_"

// metrics are what .ckptfs/metrics shows: the status in numbers, how long things
// take, and the daemon as a process. The registry is this filesystem's own.
type metrics struct {
	registry *prometheus.Registry

	publish   prometheus.Histogram
	lookup    prometheus.Histogram
	load      prometheus.Histogram
	writeBack prometheus.Histogram
	fsync     prometheus.Histogram
	admission prometheus.Histogram
	age       prometheus.Histogram
}

// durations are the bounds of the histograms: 0.1 ms to 26 s.
func durations() []float64 { return prometheus.ExponentialBuckets(0.0001, 4, 10) }

// ages are likewise: 1 s to 3 days.
func ages() []float64 { return prometheus.ExponentialBuckets(1, 4, 10) }

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	for name, h := range map[string]struct {
		into *prometheus.Histogram
		help string
	}{
		"publish":        {&m.publish, "Time that publications took, from the rename to its answer."},
		"lookup":         {&m.lookup, "Time that lookups took, from the whole request to its answer."},
		"page_load":      {&m.load, "Time that reading a page from disk into RAM took."},
		"write_back":     {&m.writeBack, "Time that writing a page to disk took."},
		"fsync":          {&m.fsync, "Time that an fsync of a page, a rank or a generation took."},
		"admission_wait": {&m.admission, "Time that a manifest waited for RAM."},
	} {
		*h.into = prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricPrefix + name + "_duration_seconds", Help: h.help, Buckets: durations()})
		m.registry.MustRegister(*h.into)
	}
	m.age = prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricPrefix + "evicted_page_age_seconds",
		Help: "How long evicted pages had been in RAM.", Buckets: ages()})
	m.registry.MustRegister(m.age)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// took takes the time of what the tiers do.
func (m *metrics) took(w evict.Work, d time.Duration) {
	switch w {
	case evict.WorkLoad:
		m.load.Observe(d.Seconds())
	case evict.WorkWriteBack:
		m.writeBack.Observe(d.Seconds())
	}
}

func (m *metrics) evicted(age time.Duration) { m.age.Observe(age.Seconds()) }

func (m *metrics) waited(d time.Duration) { m.admission.Observe(d.Seconds()) }

// statusCollector makes metrics of the status when they are asked for.
type statusCollector struct {
	fs       *FS
	measures []measure
	descs    []*prometheus.Desc // of measures
}

func newStatusCollector(fs *FS) *statusCollector {
	c := &statusCollector{fs: fs, measures: fs.measures()}
	for _, m := range c.measures {
		c.descs = append(c.descs, prometheus.NewDesc(metricPrefix+m.metric, m.help, nil, m.labels))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *statusCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *statusCollector) Collect(to chan<- prometheus.Metric) {
	s := c.fs.Status()
	for i, m := range c.measures {
		to <- prometheus.MustNewConstMetric(c.descs[i], m.kind, m.value(&s))
	}
}

// Metrics gives the metrics of the filesystem and of this process.
func (fs *FS) Metrics() prometheus.Gatherer { return fs.metrics.registry }

// metricsText is .ckptfs/metrics: Prometheus' text format.
func (fs *FS) metricsText() ([]byte, error) {
	families, err := fs.metrics.registry.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
