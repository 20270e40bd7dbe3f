package pages

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

func TestPlanesAreLossless(t *testing.T) {
	for n := range 200 {
		src := randomPage(uint64(n), n)
		sep, back := make([]byte, n), make([]byte, n)
		separatePlanes(sep, src)
		for i, v := range src[:n/planeWidth*planeWidth] {
			if sep[i%planeWidth*(n/planeWidth)+i/planeWidth] != v {
				t.Fatalf("%d bytes: byte %d is in the wrong plane", n, i)
			}
		}
		joinPlanes(back, sep)
		if !bytes.Equal(back, src) {
			t.Fatalf("%d bytes: not what it was", n)
		}
	}
}

var allCodings = []coding{
	{codecZstd, 1}, {codecZstd, planeWidth}, {codecHuffman, 1}, {codecHuffman, planeWidth},
}

func TestCodecsAreLossless(t *testing.T) {
	c := new(coderPool).get()
	for _, p := range testPages {
		for _, n := range []int{1, 2, 3, 5, 100, 4095, 4096, 131073, 262141, 262144} {
			src := p.make(uint64(n), n)
			for _, how := range allCodings {
				out, err := c.encode(src, how)
				if err != nil {
					t.Fatalf("%s, %d bytes, %v: %v", p.name, n, how, err)
				}
				if out == nil {
					continue
				}
				if len(out) >= n {
					t.Errorf("%s, %d bytes, %v: %d bytes coded", p.name, n, how, len(out))
				}
				stored := bytes.Clone(out)
				back := make([]byte, n)
				if err := c.decode(back, stored, how); err != nil || !bytes.Equal(back, src) {
					t.Fatalf("%s, %d bytes, %v: not what it was, %v", p.name, n, how, err)
				}
			}
		}
	}
}

func TestChooseAuto(t *testing.T) {
	c := new(coderPool).get()
	want := map[string]coding{
		"bf16": {codecHuffman, planeWidth}, "fp8": {codecHuffman, 1}, "fp32": {codecHuffman, planeWidth},
		"half-filled": {codecHuffman, planeWidth}, "repeated-rows": {codecZstd, 1}, "random": {codecRaw, 1},
	}
	for _, p := range testPages {
		b := p.make(7, 8*sampleBytes)
		got, _, err := chooseAuto(c, [][]byte{b[:sampleBytes], b[len(b)/2:][:sampleBytes]})
		if err != nil || got != want[p.name] {
			t.Errorf("%s: chose %v, %v; want %v", p.name, got, err, want[p.name])
		}
	}
}

func TestHuffmanEstimate(t *testing.T) {
	c := new(coderPool).get()
	for _, p := range testPages {
		s := p.make(3, sampleBytes)
		for planes, est := range map[int]float64{1: countBytes(s).huffmanTogether(), planeWidth: countBytes(s).huffmanPlanes()} {
			out, err := c.encode(s, coding{codecHuffman, planes})
			if err != nil {
				t.Fatal(err)
			}
			got := float64(len(s))
			if out != nil {
				got = float64(len(out))
			}
			if est < got*0.95-200 || est > got*1.05+200 {
				t.Errorf("%s, %d planes: estimated %.0f, is %.0f", p.name, planes, est, got)
			}
		}
	}
}

func TestTrialsBackOff(t *testing.T) {
	var tr trials
	tried := 0
	for range 1000 {
		if tr.next() {
			tried++
			tr.result(false)
		}
	}
	if tried < 20 || tried > 60 {
		t.Errorf("%d of 1000 hopeless pages were tried", tried)
	}
	for !tr.next() {
	}
	tr.result(true)
	for range 4 {
		if !tr.next() {
			t.Fatal("a page was skipped after one that gained")
		}
		tr.result(false)
	}
}

func TestParseCompress(t *testing.T) {
	for _, c := range []Compress{CompressAuto, CompressOff, CompressZstd} {
		if got, err := ParseCompress(c.String()); err != nil || got != c {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if _, err := ParseCompress("gzip"); err == nil {
		t.Error("gzip was accepted")
	}
}

// A damaged block must be an error or other bytes, never a panic. (Checksums
// keep such blocks from the decoder; this is for those that are wrong by intent.)
func FuzzDecode(f *testing.F) {
	c := new(coderPool).get()
	for i, how := range allCodings {
		out, _ := c.encode(bf16Page(1, 4096), how)
		f.Add(bytes.Clone(out), uint8(i), uint16(4096))
	}
	f.Fuzz(func(t *testing.T, b []byte, how uint8, n uint16) {
		_ = c.decode(make([]byte, n), b, allCodings[int(how)%len(allCodings)])
	})
}

func BenchmarkCodec(b *testing.B) {
	c := new(coderPool).get()
	const n = defaultBlockBytes
	for _, p := range testPages {
		src := p.make(5, 16*n)
		for _, how := range allCodings {
			name := fmt.Sprintf("%s/%v-%d", p.name, how.codec, how.planes)
			var stored [16][]byte
			total := 0
			for i := range stored {
				out, _ := c.encode(src[i*n:][:n], how)
				if out == nil {
					total += n
				} else {
					stored[i], total = bytes.Clone(out), total+len(out)
				}
			}
			b.Run(name+"/encode", func(b *testing.B) {
				b.SetBytes(n)
				for i := 0; b.Loop(); i++ {
					c.encode(src[i%16*n:][:n], how)
				}
				b.ReportMetric(float64(total)/float64(16*n), "ratio")
			})
			if stored[0] == nil {
				continue
			}
			raw := make([]byte, n)
			b.Run(name+"/decode", func(b *testing.B) {
				b.SetBytes(n)
				for i := 0; b.Loop(); i++ {
					if s := stored[i%16]; s != nil {
						c.decode(raw, s, how)
					}
				}
			})
		}
	}
}

func BenchmarkCRC32C(b *testing.B) {
	src := randomPage(1, defaultBlockBytes)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		crc32c(src)
	}
}

func BenchmarkPlanes(b *testing.B) {
	src, dst := randomPage(1, defaultBlockBytes), make([]byte, defaultBlockBytes)
	b.Run("separate", func(b *testing.B) {
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			separatePlanes(dst, src)
		}
	})
	b.Run("join", func(b *testing.B) {
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			joinPlanes(dst, src)
		}
	})
}

func BenchmarkChooseAuto(b *testing.B) {
	c := new(coderPool).get()
	for _, p := range testPages {
		s := p.make(1, 2*sampleBytes)
		b.Run(p.name, func(b *testing.B) {
			for b.Loop() {
				chooseAuto(c, [][]byte{s[:sampleBytes], s[sampleBytes:]})
			}
		})
	}
}

func TestKeepsUp(t *testing.T) {
	for _, c := range []struct {
		ratio, disk float64
		cpus        int
		want        bool
	}{
		{0.7, 0, 1, true},    // nothing is known yet
		{0.7, 5e8, 2, true},  // a slow disk
		{0.7, 3e9, 2, false}, // a fast one, few CPUs
		{0.7, 3e9, 16, true},
		{0.4, 3e9, 2, true}, // so short that it does not matter
	} {
		if got := keepsUp(c.ratio, c.disk, c.cpus); got != c.want {
			t.Errorf("keepsUp(%v, %v, %d) = %v", c.ratio, c.disk, c.cpus, got)
		}
	}
}

func TestDiskSpeed(t *testing.T) {
	var s diskSpeed
	s.observe(1000, time.Second) // too little to tell
	if s.bytesPerSec() != 0 {
		t.Error("a small write was believed")
	}
	s.observe(1e6, time.Millisecond)
	if got := s.bytesPerSec(); got != 1e9 {
		t.Errorf("%v, want the first observation", got)
	}
	s.observe(1e6, time.Second)
	if got := s.bytesPerSec(); got < 9e8 {
		t.Errorf("%v after one slow write", got)
	}
	for range 1000 {
		s.observe(1e6, time.Second)
	}
	if got := s.bytesPerSec(); got > 2e6 {
		t.Errorf("%v after many slow writes", got)
	}
}
