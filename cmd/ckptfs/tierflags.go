package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"ckptfs/evict"
	"ckptfs/fusefs"
	"ckptfs/pages"
)

// tierOptions are the flags of the disk tier and of what moves between the tiers.
type tierOptions struct {
	Dir         string        `json:"dir"`
	Size        sizeValue     `json:"size"`
	MinFree     sizeValue     `json:"min_free"`
	Compress    string        `json:"compress"`
	High        float64       `json:"high"`
	Low         float64       `json:"low"`
	WritePolicy string        `json:"write_policy"`
	Retention   string        `json:"retention"`
	Grace       time.Duration `json:"grace"`
}

// defaultMinFree keeps a disk from filling; it is little enough for a small one.
const defaultMinFree = 64 << 20

func (o *tierOptions) AddFlags(fs *pflag.FlagSet) {
	o.MinFree = defaultMinFree
	fs.StringVar(&o.Dir, "l2-dir", "", "directory of the disk tier (default disk/ below --state)")
	fs.Var(&o.Size, "l2-size", "bytes that the disk tier may take on its disk, a hard bound; 0: all but --l2-min-free")
	fs.Var(&o.MinFree, "l2-min-free", "bytes that the disk tier leaves free on its disk")
	fs.StringVar(&o.Compress, "compress", "auto", "lossless compression of pages on disk: auto (where it gains), off, zstd")
	fs.Float64Var(&o.High, "l1-high", 0.80, "fill of the RAM tier at which eviction begins")
	fs.Float64Var(&o.Low, "l1-low", 0.64, "fill of the RAM tier down to which it evicts")
	fs.StringVar(&o.WritePolicy, "write-policy", string(evict.WriteOnEvict), "when pages are written to disk: on-evict (and at a clean stop), always (publication waits for it), never")
	fs.StringVar(&o.Retention, "retention", "adaptive", "what is evicted first: adaptive (what is least likely to be continued soon), recency")
	fs.DurationVar(&o.Grace, "supersede-grace", 5*time.Minute, "how long a superseded fork point keeps its place in the order of eviction")
}

// validate checks the values by themselves.
func (o *tierOptions) validate() error {
	_, err := pages.ParseCompress(o.Compress)
	switch evict.WritePolicy(o.WritePolicy) {
	case evict.WriteOnEvict, evict.WriteAlways, evict.WriteNever:
	default:
		err = errors.Join(err, fmt.Errorf("--write-policy %q: use on-evict, always or never", o.WritePolicy))
	}
	if o.Retention != "adaptive" && o.Retention != "recency" {
		err = errors.Join(err, fmt.Errorf("--retention %q: use adaptive or recency", o.Retention))
	}
	if !(0 < o.Low && o.Low < o.High && o.High <= 1) {
		err = errors.Join(err, fmt.Errorf("--l1-low %v and --l1-high %v: 0 < low < high <= 1", o.Low, o.High))
	}
	if o.Size != 0 && o.Size < 1<<20 {
		err = errors.Join(err, fmt.Errorf("--l2-size %s is too little; the least is 1MiB, and 0 means no bound", &o.Size))
	}
	if o.Grace < 0 {
		err = errors.Join(err, errors.New("--supersede-grace must not be negative"))
	}
	return err
}

// place checks where the disk tier is to be: not in what it serves, where opening it would wait for itself, nor in the RAM
// tier. Both paths are without symlinks. It makes Dir absolute.
func (o *tierOptions) place(mountpoint, state string) error {
	if o.Dir == "" {
		return nil
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	o.Dir = dir
	resolved := resolveExisting(dir)
	for _, above := range []string{mountpoint, filepath.Join(state, ramDirName)} {
		if isBelow(resolved, above) || isBelow(dir, above) {
			return fmt.Errorf("--l2-dir %s is at or below %s; choose a directory on a disk", dir, above)
		}
	}
	return nil
}

// config is what the filesystem is told.
func (o *tierOptions) config() fusefs.TierConfig {
	compress, _ := pages.ParseCompress(o.Compress) // validated by the keeper
	return fusefs.TierConfig{
		Dir: o.Dir, L2Bytes: int64(o.Size), MinFreeBytes: int64(o.MinFree), Compress: compress,
		High: o.High, Low: o.Low, WritePolicy: evict.WritePolicy(o.WritePolicy),
		Retention: o.Retention, SupersedeGrace: o.Grace,
	}
}
