package fusefs

import "github.com/prometheus/client_golang/prometheus"

// labels tell the series of a metric apart. Their values are of small fixed sets.
type labels = prometheus.Labels

// measure is a number of the status as a metric.
type measure struct {
	metric string // without the prefix
	labels labels
	help   string
	kind   prometheus.ValueType
	value  func(*Status) float64
}

func number[T int | int64 | uint64](f func(*Status) T) func(*Status) float64 {
	return func(s *Status) float64 { return float64(f(s)) }
}

func flagOf(f func(*Status) bool) func(*Status) float64 {
	return func(s *Status) float64 {
		if f(s) {
			return 1
		}
		return 0
	}
}

// measures lists all metrics that are made of the status: its counters, and what
// else it has in numbers.
func (fs *FS) measures() []measure {
	list := append(tierMeasures(), storeMeasures()...)
	list = append(list, daemonMeasures()...)
	list = append(list, holdMeasures()...)
	for _, c := range fs.counters {
		if c.metric != "" {
			name := c.name
			list = append(list, measure{c.metric, c.labels, c.help, prometheus.CounterValue, number(func(s *Status) int64 { return s.Counters[name] })})
		}
	}
	list = append(list, measure{"build_info", labels{"version": fs.cfg.Version}, "1, with the version of the daemon.", prometheus.GaugeValue,
		func(*Status) float64 { return 1 }})
	for _, kind := range problemKinds() {
		list = append(list, measure{"problem", labels{"kind": string(kind)}, "1 while there is a problem of this kind; the status says it in words.",
			prometheus.GaugeValue, flagOf(func(s *Status) bool { return s.has(kind) })})
	}
	return list
}

func tierMeasures() []measure {
	const gauge = prometheus.GaugeValue
	const size, used = "What a tier may hold, bytes.", "What a tier holds, bytes."
	ram, disk := labels{"tier": "ram"}, labels{"tier": "disk"}
	return []measure{
		{"tier_size_bytes", ram, size, gauge, number(func(s *Status) int64 { return s.RAM.SizeBytes })},
		{"tier_size_bytes", disk, size, gauge, number(func(s *Status) int64 { return s.Disk.SizeBytes })},
		{"tier_used_bytes", ram, used, gauge, number(func(s *Status) int64 { return s.RAM.UsedBytes })},
		{"tier_used_bytes", disk, used, gauge, number(func(s *Status) int64 { return s.Disk.UsedBytes })},
		{"tier_reserved_bytes", ram, "RAM promised to stagings, bytes.", gauge, number(func(s *Status) int64 { return s.RAM.ReservedBytes })},
		{"tier_mapped_bytes", ram, "RAM of pages that are gone and still mapped by somebody, bytes.", gauge, number(func(s *Status) int64 { return s.RAM.MappedBytes })},
		{"tier_pages", ram, "Published pages in a tier.", gauge, number(func(s *Status) int { return s.RAM.Pages })},
		{"at_rest", nil, "1 while eviction and loading have nothing to do.", gauge, flagOf(func(s *Status) bool { return s.AtRest })},
		{"reconciled", nil, "1 when disk and index have been compared since the start.", gauge, flagOf(func(s *Status) bool { return s.Reconciled })},
		{"passthrough", nil, "1 while page bytes bypass the daemon.", gauge, flagOf(func(s *Status) bool { return s.Mode.Passthrough })},
		{"huge_pages", nil, "1 while the RAM tier has huge pages.", gauge, flagOf(func(s *Status) bool { return s.Mode.HugePages })},
		{"crash_invisible", nil, "1 while a killed daemon is not noticed by clients.", gauge, flagOf(func(s *Status) bool { return s.Mode.Resend })},
	}
}

func storeMeasures() []measure {
	const gauge = prometheus.GaugeValue
	return []measure{
		{"models", nil, "Models.", gauge, number(func(s *Status) int { return s.Models })},
		{"identities", nil, "Identities.", gauge, number(func(s *Status) int { return s.Identities })},
		{"generations", nil, "Published generations.", gauge, number(func(s *Status) int { return s.Generations })},
		{"generations_limit", nil, "--max-generations.", gauge, number(func(s *Status) int { return s.GenerationsMax })},
		{"stagings", nil, "Generations being written.", gauge, number(func(s *Status) int { return s.Stagings })},
		{"stagings_limit", nil, "--max-staging.", gauge, number(func(s *Status) int { return s.StagingsMax })},
		{"removing", nil, "Generations that rm -r is taking away.", gauge, number(func(s *Status) int { return s.Removing })},
		{"pins", nil, "Models, identities and generations that are pinned themselves.", gauge, number(func(s *Status) int { return s.Pins })},
		{"retention_generations", nil, "Generations that the retention policy knows.", gauge, number(func(s *Status) int { return s.Retention.Generations })},
		{"retention_conversations", nil, "Conversations that the retention policy knows.", gauge, number(func(s *Status) int { return s.Retention.Conversations })},
		{"retention_memory_bytes", nil, "Memory of the retention policy, bytes.", gauge, number(func(s *Status) int64 { return s.Retention.MemoryBytes })},
	}
}

func daemonMeasures() []measure {
	const gauge = prometheus.GaugeValue
	const lines = "Lines in the daemon's log, by level."
	seconds := func(unixNano int64) float64 { return float64(unixNano) / 1e9 }
	return []measure{
		{"start_time_seconds", nil, "When the daemon started, seconds since 1970.", gauge, func(s *Status) float64 { return seconds(s.Started.UnixNano()) }},
		{"daemon_restarts_total", nil, "Daemons started again after one had died.", prometheus.CounterValue, number(func(s *Status) int { return s.Restarts })},
		{"daemon_last_death_timestamp_seconds", nil, "When a daemon died last, seconds since 1970; 0: none has since the mount.", gauge, func(s *Status) float64 {
			if s.LastDeathAt == nil {
				return 0
			}
			return seconds(s.LastDeathAt.UnixNano())
		}},
		{"log_lines_total", labels{"level": "info"}, lines, prometheus.CounterValue, number(func(s *Status) int64 { return s.Log.Infos })},
		{"log_lines_total", labels{"level": "warning"}, lines, prometheus.CounterValue, number(func(s *Status) int64 { return s.Log.Warnings })},
		{"log_lines_total", labels{"level": "error"}, lines, prometheus.CounterValue, number(func(s *Status) int64 { return s.Log.Errors })},
		{"log_suppressed_lines_total", nil, "Lines that were left out of the daemon's log, because there were too many of one message.", prometheus.CounterValue,
			number(func(s *Status) int64 { return s.Log.Suppressed })},
		{"open_files", nil, "Descriptors that the daemon has open.", gauge, number(func(s *Status) int { return s.Files.Open })},
		{"open_files_limit", nil, "Descriptors that the daemon may have open.", gauge, number(func(s *Status) uint64 { return s.Files.Max })},
	}
}

func holdMeasures() []measure {
	const gauge = prometheus.GaugeValue
	const leases = "Open handles that keep something from being dropped, by kind; leases.json lists them."
	const handles = "Open files and directories, by kind."
	lease := func(kind LeaseKind, f func(*Status) int) measure {
		return measure{"leases", labels{"kind": string(kind)}, leases, gauge, number(f)}
	}
	return []measure{
		{"handles", labels{"kind": "page"}, handles, gauge, number(func(s *Status) int { return s.Handles.Pages })},
		{"handles", labels{"kind": "find"}, handles, gauge, number(func(s *Status) int { return s.Handles.Find })},
		{"handles", labels{"kind": "other"}, handles, gauge, number(func(s *Status) int64 { return s.Handles.Open - int64(s.Handles.Pages+s.Handles.Find) })},
		{"handles_limit", nil, "Open files and directories that there may be; an open beyond it is EMFILE.", gauge, number(func(s *Status) int { return s.Handles.Max })},
		{"client_memory_bytes", nil, "Memory of requests and answers that clients have open, bytes.", gauge, number(func(s *Status) int64 { return s.Clients.Bytes })},
		{"client_memory_limit_bytes", nil, "What that may be at most; beyond it is ENOMEM.", gauge, number(func(s *Status) int64 { return s.Clients.MaxBytes })},
		lease(LeasePage, func(s *Status) int { return s.Leases.Pages }),
		lease(LeaseDirectory, func(s *Status) int { return s.Leases.Directories }),
		lease(LeaseFind, func(s *Status) int { return s.Leases.Finds }),
		lease(LeaseStaging, func(s *Status) int { return s.Leases.Stagings }),
	}
}
