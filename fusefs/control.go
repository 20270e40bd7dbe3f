package fusefs

import "encoding/json"

// controlFile is a file of .ckptfs: made when it is opened.
type controlFile struct {
	name string
	make func(*FS) ([]byte, error)
}

// commandName is the file of .ckptfs that takes orders; see Order.
const commandName = "control"

// controlFiles are the files of .ckptfs by their nodes, which follow nodeControl.
var controlFiles = map[nodeID]controlFile{
	nodeStatus:  {"status.json", (*FS).statusJSON},
	nodeLeases:  {"leases.json", (*FS).leasesJSON},
	nodeConfig:  {"config.json", (*FS).configJSON},
	nodeMetrics: {"metrics", (*FS).metricsText},
}

func (fs *FS) statusJSON() ([]byte, error) {
	b, err := json.MarshalIndent(fs.Status(), "", "  ")
	return append(b, '\n'), err
}

// configJSON tells what the mount runs with.
func (fs *FS) configJSON() ([]byte, error) {
	b, err := json.MarshalIndent(fs.cfg.Effective, "", "  ")
	return append(b, '\n'), err
}
