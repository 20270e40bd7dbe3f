package fusefs

// Probe returns when each lock could be had that most requests need. The keeper takes a daemon in which it does not
// return for hung. It asks no disk: a slow or hung one is trouble that another daemon would have too, and what is in
// RAM is served all the same.
func (fs *FS) Probe() {
	fs.budget.Usage()
	fs.disk.Usage()
	fs.idx.Models(0, 1)
	fs.stage.Count()
	fs.live.Probe()
	fs.leases.count(0)
	fs.handles.byOpID(0)
	fs.backing.reason()
	fs.tombs.find(0, "", 0, fs.now())
}
