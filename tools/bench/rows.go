package main

// rows is the table, in its order.
var rows = []row{
	{"store", "storing 6.9 MB pages, 4 rank processes", "the same writes to files in /dev/shm", storeRow},
	{"restore-read", "restoring from RAM by read(2) into a buffer, 4 rank processes", "the same reads of files in /dev/shm", restoreRow("read", 1.7)},
	{"restore-mmap", "restoring from RAM by mmap, each 4 KiB touched, 4 rank processes", "the same of files in /dev/shm", restoreRow("map", 3)},
	{"restore-ordinary", "restoring from RAM by read(2), 4 rank processes", "the same mount with --passthrough=off, nothing in the kernel's cache", ordinaryRow},
	{"restore-disk", "restoring from disk, cold, checksums verified", "direct reads of the same files, as many at a time", diskRow},
	{"small", "open, read and close of 64 KiB pages, one process", "the same mount with --passthrough=off, nothing in the kernel's cache", smallRow},
	{"find", "lookup of a 200,000-token request among 65,536 generations", "the same among 1,000", findRow},
	{"publish", "publication (rename) of a 224-page generation among 65,536", "the same among 1,000", publishRow},
	{"replay", "staging a generation that is published already", "", replayRow},
	{"start", "start with 65,536 generations and 1,000,000 pages", "", startRow},
	{"drain", "restoring from disk while a burst of writes drains to it", "the same idle", drainRow},
}

// pagesPerRank is how many pages each rank of a page row moves.
func (b *bench) pagesPerRank() int {
	if b.o.quick {
		return 12
	}
	return 20
}

// largeL1 holds two generations of a page row.
const largeL1 = "2GiB"

// shared mounts are those that several rows use.

func (b *bench) named(name, l1 string, flags ...string) (*mounted, error) {
	for _, m := range b.mounts {
		if m.base == b.base+"/"+name {
			if m.keeper == nil {
				return m, m.start()
			}
			return m, nil
		}
	}
	return b.mount(name, l1, flags...)
}
