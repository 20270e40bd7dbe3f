package fusefs

import (
	"slices"
	"sync/atomic"
	"time"

	"ckptfs/evict"
	"ckptfs/index"
)

// counters count since this daemon started.
type counters struct {
	pageOpens            atomic.Int64
	pagesWritten         atomic.Int64
	lookups              atomic.Int64
	lookupMisses         atomic.Int64
	hitsRAM              atomic.Int64 // lookups whose answer was in RAM as a whole
	hitsDisk             atomic.Int64 // the others
	hitPagesRAM          atomic.Int64
	hitPagesDisk         atomic.Int64
	generationsPublished atomic.Int64
	generationsDeleted   atomic.Int64
	publishBusy          atomic.Int64
	stagingsDiscarded    atomic.Int64
	bytesReadOrdinary    atomic.Int64
	handlesRefused       atomic.Int64
	memoryRefused        atomic.Int64
	retired              [8]atomic.Int64 // by the order of retireReasons
}

// retireReasons are the reasons for which the server itself retires generations,
// and their short names in status and metrics.
func retireReasons() (reasons []index.Reason, names []string) {
	return []index.Reason{evict.ReasonLost, evict.ReasonPressure, evict.ReasonDiskFull, evict.ReasonSuperseded, evict.ReasonUnlikely, reasonLimit, reasonQuota, reasonCleared},
		[]string{"lost", "pressure", "disk", "superseded", "unlikely", "limit", "quota", "cleared"}
}

func (c *counters) retire(why index.Reason, n int) {
	reasons, _ := retireReasons()
	if i := slices.Index(reasons, why); i >= 0 {
		c.retired[i].Add(int64(n))
	}
}

func (c *counters) allRetired() (n int64) {
	for i := range c.retired {
		n += c.retired[i].Load()
	}
	return n
}

// counter is what counts, under its name in status.json and as a metric. Both are
// made of this table, so that they cannot differ.
type counter struct {
	name   string // in status.json
	metric string // without the prefix; "" for what is made of others
	labels labels
	help   string // one for all counters of a metric
	value  func() int64
}

// counterTable lists everything that is counted.
func (fs *FS) counterTable() []counter {
	return slices.Concat(fs.serviceCounters(), fs.lookupCounters(), fs.diskCounters(), fs.evictionCounters(), fs.retireCounters())
}

func (fs *FS) serviceCounters() []counter {
	c := &fs.count
	return []counter{
		{"page_opens", "page_opens_total", nil, "Opens of pages, for reading and for writing.", c.pageOpens.Load},
		{"pages_written", "pages_written_total", nil, "Pages that ranks have begun to write.", c.pagesWritten.Load},
		{"generations_published", "generations_published_total", nil, "Generations published.", c.generationsPublished.Load},
		{"generations_deleted", "generations_deleted_total", nil, "Generations deleted or unpublished by clients.", c.generationsDeleted.Load},
		{"publish_busy", "publish_busy_total", nil, "Renames refused with EBUSY: a page was not complete.", c.publishBusy.Load},
		{"index_changes", "index_changes_total", nil, "Transactions that changed what is published or where its pages are.", func() int64 { return int64(fs.idx.Changes()) }},
		{"stagings_discarded", "stagings_discarded_total", nil, "Stagings discarded after their timeout.", c.stagingsDiscarded.Load},
		{"handles_refused", "handles_refused_total", nil, "Opens refused with EMFILE.", c.handlesRefused.Load},
		{"memory_refused", "client_memory_refused_total", nil, "Requests refused with ENOMEM, because clients had too much held.", c.memoryRefused.Load},
		{"bytes_read_ordinary", "ordinary_read_bytes_total", nil, "Page bytes read through the daemon, not by passthrough.", c.bytesReadOrdinary.Load},
	}
}

func (fs *FS) lookupCounters() []counter {
	c := &fs.count
	const hits, found = "Lookups that found a generation, by where its pages were: all in ram, or some on disk.", "Pages of found generations, by where they were."
	return []counter{
		{"lookups", "lookups_total", nil, "Requests to .find.", c.lookups.Load},
		{"lookup_misses", "lookup_misses_total", nil, "Lookups that found nothing.", c.lookupMisses.Load},
		{"lookup_hits_ram", "lookup_hits_total", labels{"tier": "ram"}, hits, c.hitsRAM.Load},
		{"lookup_hits_disk", "lookup_hits_total", labels{"tier": "disk"}, hits, c.hitsDisk.Load},
		{"lookup_pages_ram", "lookup_pages_total", labels{"tier": "ram"}, found, c.hitPagesRAM.Load},
		{"lookup_pages_disk", "lookup_pages_total", labels{"tier": "disk"}, found, c.hitPagesDisk.Load},
	}
}

func (fs *FS) diskCounters() []counter {
	c := &fs.tiers.Counts
	const written = "Page bytes written to disk, by reason: evict (RAM was needed), flush (a stop), durable (somebody waited for it), drop (an operator emptied RAM)."
	const avoided = "Page bytes that were not written to disk, by reason."
	return []counter{
		{"disk_written_bytes", "", nil, "", c.WrittenBytes},
		{"written_evict_bytes", "disk_written_bytes_total", labels{"reason": "evict"}, written, c.WrittenEvict.Load},
		{"written_flush_bytes", "disk_written_bytes_total", labels{"reason": "flush"}, written, c.WrittenFlush.Load},
		{"written_durable_bytes", "disk_written_bytes_total", labels{"reason": "durable"}, written, c.WrittenDurable.Load},
		{"written_drop_bytes", "disk_written_bytes_total", labels{"reason": "drop"}, written, c.WrittenDrop.Load},
		{"disk_written_pages", "disk_written_pages_total", nil, "Pages written to disk.", c.WrittenPages.Load},
		{"disk_stored_bytes", "disk_stored_bytes_total", nil, "Bytes that written pages take on disk, compressed.", c.StoredBytes.Load},
		{"disk_write_failures", "disk_write_failures_total", nil, "Writes of pages to disk that failed.", c.WriteFailures.Load},
		{"avoided_compressed_bytes", "", nil, "", func() int64 { return max(c.WrittenBytes()-c.StoredBytes.Load(), 0) }},
		{"avoided_deduplicated_bytes", "avoided_write_bytes_total", labels{"reason": "deduplicated"}, avoided, c.Deduplicated.Load},
		{"avoided_superseded_bytes", "avoided_write_bytes_total", labels{"reason": "superseded"}, avoided, c.DroppedSuperseded.Load},
		{"avoided_unlikely_bytes", "avoided_write_bytes_total", labels{"reason": "unlikely"}, avoided, c.DroppedUnlikely.Load},
		{"loaded_bytes", "loaded_bytes_total", nil, "Page bytes brought from disk to RAM.", c.LoadedBytes.Load},
		{"loaded_pages", "loaded_pages_total", nil, "Pages brought from disk to RAM.", c.LoadedPages.Load},
		{"uncached_opens", "uncached_opens_total", nil, "Opens of pages that were served from disk, because RAM was short.", c.UncachedOpens.Load},
		{"lost_pages", "lost_pages_total", nil, "Pages of which no tier had a good copy.", c.LostPages.Load},
	}
}

func (fs *FS) evictionCounters() []counter {
	c := &fs.tiers.Counts
	return []counter{
		{"evicted_pages", "evicted_pages_total", nil, "Pages evicted from RAM.", c.EvictedPages.Load},
		{"evicted_bytes", "evicted_bytes_total", nil, "Page bytes evicted from RAM.", c.EvictedBytes.Load},
		{"evicted_age_seconds", "evicted_age_seconds_total", nil, "Time that evicted pages had been in RAM, summed up.",
			func() int64 { return c.EvictedAge.Load() / int64(time.Second) }},
		{"dropped_pressure_bytes", "dropped_pressure_bytes_total", nil, "Page bytes given up because RAM was needed and the disk did not take them.", c.DroppedPressure.Load},
	}
}

func (fs *FS) retireCounters() []counter {
	list := []counter{{"generations_retired", "", nil, "", fs.count.allRetired}}
	_, names := retireReasons()
	for i, name := range names {
		list = append(list, counter{"generations_retired_" + name, "generations_retired_total", labels{"reason": name},
			"Generations retired by the server itself, by reason.", fs.count.retired[i].Load})
	}
	return list
}
