package pages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func testKey(i int) Key { return sha256.Sum256(fmt.Append(nil, "page ", i)) }

// openTestDisk opens a tier and, when the test ends, holds its account against
// what is really there.
func openTestDisk(t testing.TB, cfg DiskConfig) *Disk {
	t.Helper()
	if cfg.DiskBytesPerSec == 0 {
		cfg.DiskBytesPerSec = 1 // so slow that compression pays, whatever the machine
	}
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "l2")
	}
	d, err := OpenDisk(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.SetUsage(du(t, cfg.Dir))
	t.Cleanup(func() { checkUsage(t, d) })
	return d
}

// du is what du(1) says.
func du(t testing.TB, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		sum += realBytes(st)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func checkUsage(t testing.TB, d *Disk) {
	t.Helper()
	u := d.Usage()
	if got := du(t, d.Dir()); u.UsedBytes != got || u.ReservedBytes != 0 {
		t.Errorf("accounted %d and %d reserved, %d are there", u.UsedBytes, u.ReservedBytes, got)
	}
	if d.cfg.SizeBytes > 0 && u.UsedBytes > d.cfg.SizeBytes {
		t.Errorf("%d bytes exceed the bound of %d", u.UsedBytes, d.cfg.SizeBytes)
	}
}

func put(t testing.TB, d *Disk, key Key, page []byte) int64 {
	t.Helper()
	return must(d.Put(context.Background(), key, bytes.NewReader(page), int64(len(page)), false))(t)
}

// memFile is an io.WriterAt in memory.
type memFile struct {
	mu sync.Mutex
	b  []byte
}

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if end := int(off) + len(p); end > len(m.b) {
		m.b = append(m.b, make([]byte, end-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// read gives the page by CopyTo, having compared ReadAt with it.
func read(d *Disk, key Key) ([]byte, error) {
	var m memFile
	n, err := d.CopyTo(context.Background(), key, &m)
	if err != nil {
		return nil, err
	}
	if n != int64(len(m.b)) {
		return nil, fmt.Errorf("CopyTo: %d bytes of %d", n, len(m.b))
	}
	o, err := d.OpenObject(key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, n)
	if _, err := o.ReadAt(b, 0); err != nil {
		return nil, err
	}
	if !bytes.Equal(b, m.b) || o.RawBytes() != n {
		return nil, errors.New("ReadAt and CopyTo differ")
	}
	return b, nil
}

var testSizes = []int{1, 100, 4095, 4096, 4097, 16384, 65536, 262143, 262144, 262145, 1<<20 + 1, 3 << 20}

func TestDiskRoundTrip(t *testing.T) {
	for _, mode := range []Compress{CompressAuto, CompressOff, CompressZstd} {
		t.Run(mode.String(), func(t *testing.T) {
			d := openTestDisk(t, DiskConfig{Compress: mode})
			i := 0
			for _, p := range testPages {
				for _, n := range testSizes {
					if n > 262144 && p.name != "half-filled" && p.name != "random" {
						continue // slow to make, and nothing new
					}
					i++
					page := p.make(uint64(i), n)
					stored := put(t, d, testKey(i), page)
					got, err := read(d, testKey(i))
					if err != nil || !bytes.Equal(got, page) {
						t.Fatalf("%s of %d bytes: not what it was, %v", p.name, n, err)
					}
					if most := alignUp(int64(n)) + 2*alignBytes; stored > most {
						t.Errorf("%s of %d bytes takes %d", p.name, n, stored)
					}
					if err := d.Verify(context.Background(), testKey(i)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

func TestDiskCompressionPays(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	const n = 1 << 20
	most := map[string]float64{"bf16": 0.75, "fp8": 0.85, "fp32": 0.88, "half-filled": 0.4, "repeated-rows": 0.1, "random": 1.01}
	for i, p := range testPages {
		stored := put(t, d, testKey(i), p.make(uint64(i), n))
		if ratio := float64(stored) / n; ratio > most[p.name] {
			t.Errorf("%s: stored in %.3f of its size, want %.2f", p.name, ratio, most[p.name])
		}
	}
}

// The beginning of a page and its middle may promise what the rest does not keep.
func TestDiskGivesUpCoding(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	page := randomPage(1, 4<<20)
	clear(page[:sampleBytes/2])
	clear(page[2<<20:][:sampleBytes/2])
	put(t, d, testKey(1), page)
	o := must(d.OpenObject(testKey(1)))(t)
	defer o.Close()
	if o.h.codec == codecRaw {
		t.Fatal("the samples should have promised something")
	}
	for i, b := range o.h.blocks[trialBlocks:] {
		if int64(b.storedBytes) != o.h.blockRawBytes(i) {
			t.Errorf("block %d was coded", i+trialBlocks)
		}
	}
	if got := must(read(d, testKey(1)))(t); !bytes.Equal(got, page) {
		t.Error("not what it was")
	}
}

func TestObjectReadAt(t *testing.T) {
	for _, mode := range []Compress{CompressAuto, CompressOff} {
		d := openTestDisk(t, DiskConfig{Compress: mode})
		page := bf16Page(9, 3<<20+777)
		put(t, d, testKey(1), page)
		o := must(d.OpenObject(testKey(1)))(t)
		defer o.Close()
		r := testRand(4)
		for range 300 {
			off, n := r.IntN(len(page)), r.IntN(600_000)
			got := make([]byte, n)
			k, err := o.ReadAt(got, int64(off))
			want := page[off:min(off+n, len(page))]
			if !bytes.Equal(got[:k], want) || (k < n) != (err == io.EOF) || err != nil && err != io.EOF {
				t.Fatalf("%d bytes at %d: %d, %v", n, off, k, err)
			}
		}
		all := must(io.ReadAll(io.NewSectionReader(o, 0, o.RawBytes())))(t)
		if !bytes.Equal(all, page) {
			t.Error("small reads in sequence differ")
		}
		if _, err := o.ReadAt(make([]byte, 1), o.RawBytes()); err != io.EOF {
			t.Errorf("read at the end: %v, want EOF", err)
		}
	}
}

func TestDiskExistingIsNotWrittenAgain(t *testing.T) {
	steps := &countSteps{}
	d := openTestDisk(t, DiskConfig{Steps: steps})
	page := randomPage(1, 100_000)
	first := put(t, d, testKey(1), page)
	writes, syncs := steps.n(StepWrite), steps.n(StepSync)
	if again := put(t, d, testKey(1), page); again != first {
		t.Errorf("%d bytes stored the second time, %d the first", again, first)
	}
	if _, err := d.Put(context.Background(), testKey(1), bytes.NewReader(page), int64(len(page)), true); err != nil {
		t.Fatal(err)
	}
	if steps.n(StepWrite) != writes {
		t.Error("written again")
	}
	if steps.n(StepSync) != syncs+1 || steps.n(StepSyncDir) == 0 {
		t.Error("durability was asked for the second time, and nothing was synced")
	}
}

func TestDiskConcurrentPuts(t *testing.T) {
	steps := &countSteps{}
	d := openTestDisk(t, DiskConfig{Steps: steps, Compress: CompressOff})
	pages := make([][]byte, 4)
	for i := range pages {
		pages[i] = randomPage(uint64(i), 500_000)
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			i := g % len(pages)
			if _, err := d.Put(context.Background(), testKey(i), bytes.NewReader(pages[i]), int64(len(pages[i])), false); err != nil {
				t.Error(err)
			}
			if got, err := read(d, testKey(i)); err != nil || !bytes.Equal(got, pages[i]) {
				t.Errorf("page %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := steps.n(StepCreate); n != len(pages) {
		t.Errorf("%d files were made for %d objects", n, len(pages))
	}
}

func TestDiskRemove(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	page := randomPage(1, 300_000)
	put(t, d, testKey(1), page)
	if has := must(d.Has(testKey(1)))(t); !has {
		t.Error("it is there")
	}
	o := must(d.OpenObject(testKey(1)))(t)
	defer o.Close()
	for range 2 {
		if err := d.Remove(testKey(1)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len(page))
	if _, err := o.ReadAt(got, 0); err != nil || !bytes.Equal(got, page) {
		t.Errorf("an open object after its removal: %v", err)
	}
	if has := must(d.Has(testKey(1)))(t); has {
		t.Error("it is gone")
	}
	if _, err := d.OpenObject(testKey(1)); !errors.Is(err, ErrAbsent) || errors.Is(err, ErrLost) {
		t.Errorf("open: %v, want ErrAbsent", err)
	}
	if err := d.Sync(testKey(1)); !errors.Is(err, ErrAbsent) {
		t.Errorf("sync: %v, want ErrAbsent", err)
	}
}

func TestDiskShortSource(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	_, err := d.Put(context.Background(), testKey(1), bytes.NewReader(make([]byte, 100)), 101, false)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, want unexpected EOF", err)
	}
	if _, err := d.Put(context.Background(), testKey(1), bytes.NewReader(nil), 0, false); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a page of nothing: %v, want EINVAL", err)
	}
}

func TestDiskCancel(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	page := randomPage(1, 5<<20)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Put(ctx, testKey(1), bytes.NewReader(page), int64(len(page)), false); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	put(t, d, testKey(1), page)
	if _, err := d.CopyTo(ctx, testKey(1), &memFile{}); !errors.Is(err, context.Canceled) {
		t.Errorf("copy: %v", err)
	}
}

func TestDiskTargetFails(t *testing.T) {
	d := openTestDisk(t, DiskConfig{})
	put(t, d, testKey(1), randomPage(1, 5<<20))
	if _, err := d.CopyTo(context.Background(), testKey(1), failWriter{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want the target's ENOSPC", err)
	}
}

type failWriter struct{}

func (failWriter) WriteAt([]byte, int64) (int, error) { return 0, unix.ENOSPC }

func TestDiskIntoRAM(t *testing.T) {
	r := mountTestRAM(t, 64<<20)
	d := openTestDisk(t, DiskConfig{})
	page := bf16Page(3, 6893568)
	f := must(r.Create(1, int64(len(page))))(t)
	must(f.Write(page))(t)
	must(d.Put(context.Background(), testKey(1), f, int64(len(page)), true))(t)
	f.Close()
	f = must(r.Create(2, int64(len(page))))(t)
	must(d.CopyTo(context.Background(), testKey(1), f))(t)
	f.Close()
	if got := must(os.ReadFile(r.Path(2)))(t); !bytes.Equal(got, page) {
		t.Error("not what it was")
	}
}
