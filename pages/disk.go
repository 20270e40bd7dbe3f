package pages

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// DiskConfig says where the disk tier is and what it may take.
type DiskConfig struct {
	Dir          string   // made if absent; its parent must exist
	SizeBytes    int64    // hard bound on real bytes, temporary files and directories included; 0: none
	MinFreeBytes int64    // what writing must leave free on the disk itself
	Compress     Compress // zero value: auto

	// TierID is the ID that the tier had when its contents were recorded. If
	// the directory has another one, or none, OpenDisk is ErrTierChanged: a
	// disk that is not mounted must not look like one that lost everything.
	// Empty accepts what is there.
	TierID string

	// ReadOnly opens for looking only (fsck): nothing is made, moved or written.
	ReadOnly bool

	// DiskBytesPerSec is what the disk does; above what half of the CPUs can decode,
	// auto does without compression. 0: found out by writing.
	DiskBytesPerSec float64

	CopyParallel int         // reads in flight of one CopyTo; 0: 2
	OnEvent      func(Event) // told of what goes wrong with stored data; may be nil
	Steps        Steps       // fault injection; nil: none
}

// Disk is the disk tier: one object per page, <dir>/<2 hex>/<64 hex key>, and
// small named blobs beside them. FORMAT.md has every byte. All methods may be
// called from any number of goroutines, with no lock held.
//
// Lock order: a key's lock (keyLocks), then the area of its directory, then the
// quarantine's area, then the small mutexes of account, temps and trials, which
// are never held over I/O. No lock is held while page bytes move but the key's,
// which only writers of that key take. Readers take none.
type Disk struct {
	cfg     DiskConfig
	fs      diskFS
	id      string
	tag     string // in this opening's temporary names
	cpus    int    // that there were at its opening
	rootDev uint64
	rootIno uint64

	acct    account
	keys    keyLocks
	buffers bufferPool
	coders  coderPool
	trials  trials
	speed   diskSpeed
	tempSeq atomic.Uint64

	mu struct {
		sync.Mutex
		areas    map[string]*area
		inFlight map[string]bool  // temporary files being written, by path
		leaked   map[string]int64 // those that could not be removed: their real bytes
		bad      []Key            // of objects that were found bad, see TakeBad
	}

	quarantined struct { // guarded by the quarantine's area
		known bool
		bytes int64
	}

	counts struct{ lost, reread atomic.Int64 }
}

const (
	tierFile      = "ckptfs-disk-tier" // holds the tier's ID
	quarantineDir = "quarantine"
	blobDir       = "generations"
	tempPrefix    = ".tmp-"
)

// OpenDisk opens the tier and makes what is missing of its directories. It
// scans nothing: SetContentBytes tells it what is there, Recount makes that exact.
func OpenDisk(cfg DiskConfig) (*Disk, error) {
	if cfg.SizeBytes < 0 || cfg.MinFreeBytes < 0 {
		return nil, fmt.Errorf("disk tier %s: sizes must not be negative", cfg.Dir)
	}
	if cfg.CopyParallel <= 0 {
		cfg.CopyParallel = 2
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	d := &Disk{cfg: cfg, fs: diskFS{cfg.Steps}, coders: coderPool{level: cfg.Compress.zstdLevel()}}
	d.acct.sizeBytes = cfg.SizeBytes
	d.speed.fixed = cfg.DiskBytesPerSec
	d.mu.areas = map[string]*area{}
	d.mu.inFlight = map[string]bool{}
	d.mu.leaked = map[string]int64{}
	d.tag, d.cpus = randomHex(4), runtime.GOMAXPROCS(0)
	if err := d.openTier(); err != nil {
		return nil, fmt.Errorf("open disk tier: %w", err)
	}
	return d, nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (d *Disk) openTier() error {
	st, err := d.fs.lstat(d.cfg.Dir + "/") // the slash follows a symbolic link
	if errors.Is(err, os.ErrNotExist) && d.cfg.TierID != "" {
		return fmt.Errorf("%w: %w", ErrTierChanged, err)
	}
	if errors.Is(err, os.ErrNotExist) && !d.cfg.ReadOnly {
		if err := d.fs.mkdir(d.cfg.Dir); err != nil {
			return err
		}
		st, err = d.fs.lstat(d.cfg.Dir + "/")
	}
	if err != nil {
		return err
	}
	d.rootDev, d.rootIno = uint64(st.Dev), st.Ino
	if total, err := d.fs.totalBytes(d.cfg.Dir); err != nil {
		return err
	} else if d.cfg.MinFreeBytes >= total {
		return fmt.Errorf("%d bytes are to be left free (--l2-min-free), the whole disk of %s has %d: %w", d.cfg.MinFreeBytes, d.cfg.Dir, total, unix.EINVAL)
	}
	if err := d.openID(); err != nil || d.cfg.ReadOnly {
		return err
	}
	if err := d.keepOwn(tierFile); err != nil {
		return err
	}
	return d.makeAreas()
}

// openID reads the tier's ID, or gives a new tier one.
func (d *Disk) openID() error {
	path := filepath.Join(d.cfg.Dir, tierFile)
	b, err := os.ReadFile(path)
	switch {
	case err == nil && len(b) == 33 && isHex(string(b[:32]), 32):
		d.id = string(b[:32])
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if d.cfg.TierID != "" && d.id != d.cfg.TierID {
		return fmt.Errorf("%s has tier ID %q, want %q: %w", d.cfg.Dir, d.id, d.cfg.TierID, ErrTierChanged)
	}
	if d.id != "" || d.cfg.ReadOnly {
		return nil
	}
	d.id = randomHex(16)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(d.id + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// makeAreas makes the objects' directories at once, so that the first writes
// need not sync their parent. On a full disk they are made when they are needed.
func (d *Disk) makeAreas() error {
	for i := range 256 {
		err := d.fs.mkdir(filepath.Join(d.cfg.Dir, fmt.Sprintf("%02x", i)))
		if err != nil && !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return d.fs.syncDir(d.cfg.Dir) // who made them before may not have come to this
}

// ID is the tier's own identifier, 32 hex digits, for DiskConfig.TierID.
func (d *Disk) ID() string { return d.id }

// Dir is the tier's directory.
func (d *Disk) Dir() string { return d.cfg.Dir }

// ObjectPath is where the object of key is, or would be.
func (d *Disk) ObjectPath(key Key) string {
	return filepath.Join(d.cfg.Dir, objectDir(key), key.String())
}

func objectDir(key Key) string { return hex.EncodeToString(key[:1]) }

func (d *Disk) path(rel ...string) string {
	return filepath.Join(append([]string{d.cfg.Dir}, rel...)...)
}

// confirmAbsent turns an ENOENT into ErrAbsent if the tier's directory is still
// the one that was opened, and otherwise into trouble.
func (d *Disk) confirmAbsent(enoent error) error {
	st, err := d.fs.lstat(d.cfg.Dir + "/")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTierChanged, noNotExist(err))
	}
	if uint64(st.Dev) != d.rootDev || st.Ino != d.rootIno {
		return fmt.Errorf("%s: %w", d.cfg.Dir, ErrTierChanged)
	}
	return fmt.Errorf("%w: %w", ErrAbsent, enoent)
}

// noNotExist hides an ENOENT of the tier itself: a caller that looks for
// os.ErrNotExist must not take it for that of an object.
func noNotExist(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return errors.New(err.Error())
	}
	return err
}

// Has reports whether there is an object for key. False without an error has
// been confirmed by the disk. It does not look at the object's bytes.
func (d *Disk) Has(key Key) (bool, error) {
	st, err := d.fs.lstat(d.ObjectPath(key))
	if errors.Is(err, unix.ENOENT) {
		if err := d.confirmAbsent(err); !errors.Is(err, ErrAbsent) {
			return false, err
		}
		return false, nil
	}
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG, err
}
