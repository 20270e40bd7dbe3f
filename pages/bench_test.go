package pages

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const benchPageBytes = 6893568

// BenchmarkDiskPut writes pages of the usual size; put them on the disk to be
// measured with TMPDIR.
func BenchmarkDiskPut(b *testing.B) {
	for _, kind := range []string{"random", "bf16"} {
		page := map[string]func(uint64, int) []byte{"random": randomPage, "bf16": bf16Page}[kind](1, benchPageBytes)
		for _, durable := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/durable=%v", kind, durable), func(b *testing.B) {
				d := openTestDisk(b, DiskConfig{})
				b.SetBytes(benchPageBytes)
				for i := 0; b.Loop(); i++ {
					if _, err := d.Put(context.Background(), testKey(i), bytes.NewReader(page), benchPageBytes, durable); err != nil {
						b.Fatal(err)
					}
					if i >= 8 {
						b.StopTimer()
						d.Remove(testKey(i - 8))
						b.StartTimer()
					}
				}
			})
		}
	}
}

// BenchmarkDiskCopyTo brings cold pages into a RAM tier, and for comparison
// reads the same files directly without looking at them.
func BenchmarkDiskCopyTo(b *testing.B) {
	const pages = 24
	r := mountTestRAM(b, 512<<20)
	for _, kind := range []string{"random", "bf16"} {
		d := openTestDisk(b, DiskConfig{})
		for i := range pages {
			page := map[string]func(uint64, int) []byte{"random": randomPage, "bf16": bf16Page}[kind](uint64(i), benchPageBytes)
			if _, err := d.Put(context.Background(), testKey(i), bytes.NewReader(page), benchPageBytes, true); err != nil {
				b.Fatal(err)
			}
		}
		for _, readers := range []int{1, 4} {
			for _, parallel := range []int{1, 2, 4} {
				d.cfg.CopyParallel = parallel
				b.Run(fmt.Sprintf("%s/readers=%d/parallel=%d", kind, readers, parallel), func(b *testing.B) {
					b.SetBytes(pages * benchPageBytes)
					for b.Loop() {
						eachPage(readers, pages, func(i int) {
							r.Remove(ID(i))
							f, err := r.Create(ID(i), benchPageBytes)
							if err == nil {
								_, err = d.CopyTo(context.Background(), testKey(i), f)
								f.Close()
							}
							if err != nil {
								b.Error(err)
							}
						})
					}
				})
			}
			b.Run(fmt.Sprintf("%s/readers=%d/direct", kind, readers), func(b *testing.B) {
				b.SetBytes(pages * benchPageBytes)
				for b.Loop() {
					eachPage(readers, pages, func(i int) { readDirect(b, d.ObjectPath(testKey(i))) })
				}
			})
		}
	}
}

func eachPage(workers, n int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func readDirect(b *testing.B, path string) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	buf := newIOBuffer().b[:ioBytes]
	for {
		if _, err := f.Read(buf); err == io.EOF {
			return
		} else if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDiskSmallPages is 64 KiB pages, where the calls count.
func BenchmarkDiskSmallPages(b *testing.B) {
	d := openTestDisk(b, DiskConfig{})
	page := randomPage(1, 64<<10)
	for i := range 256 {
		put(b, d, testKey(i), page)
	}
	b.SetBytes(64 << 10)
	for i := 0; b.Loop(); i++ {
		if _, err := d.CopyTo(context.Background(), testKey(i%256), &memFile{b: page}); err != nil {
			b.Fatal(err)
		}
	}
}
