package pages

import (
	"errors"
	"os"
	"path/filepath"
)

// MakeDirectories makes the directories that objects are spread over, so that
// they are there, and counted, from the start. Those that are there stay.
func (d *Disk) MakeDirectories() error {
	const digits = "0123456789abcdef"
	for _, a := range digits {
		for _, b := range digits {
			err := os.Mkdir(filepath.Join(d.cfg.Dir, string(a)+string(b)), 0o700)
			if err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
	}
	return nil
}

// DirectoryBytes is what the tier's directories take by themselves, as far as
// they are counted. df shows what pages take, not these.
func (d *Disk) DirectoryBytes() (sum int64) {
	d.mu.Lock()
	areas := make([]*area, 0, len(d.mu.areas))
	for _, a := range d.mu.areas {
		areas = append(areas, a)
	}
	d.mu.Unlock()
	for _, a := range areas {
		a.Lock()
		sum += a.bytes
		a.Unlock()
	}
	return sum
}
