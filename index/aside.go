package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SetAside renames the files of a database that is of no use, so that nobody
// opens them again: index.db.bad-<time>. It returns the new name of the first.
func SetAside(path string, now time.Time) (aside string, err error) {
	aside = fmt.Sprintf("%s.bad-%s", path, now.UTC().Format("20060102T150405.000"))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		err := os.Rename(path+suffix, aside+suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return aside, syncDir(filepath.Dir(path))
}
