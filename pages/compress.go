package pages

import (
	"fmt"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Compress is the --compress setting.
type Compress int

const (
	CompressAuto Compress = iota // whatever pays; the default
	CompressOff                  // never
	CompressZstd                 // zstd wherever it shortens
)

// ParseCompress reads the setting as it is written on the command line.
func ParseCompress(s string) (Compress, error) {
	for _, c := range []Compress{CompressAuto, CompressOff, CompressZstd} {
		if s == c.String() {
			return c, nil
		}
	}
	return 0, fmt.Errorf("compression %q is not one of auto, off, zstd", s)
}

func (c Compress) String() string { return [...]string{"auto", "off", "zstd"}[c] }

const (
	// minGain is the part of a page that coding must save to be worth while.
	minGain = 0.05
	// zstdBetter is how much shorter zstd must be than Huffman coding alone
	// before auto takes it: it decodes at a third of the speed.
	zstdBetter = 0.85
	// minCompressBytes is the page size below which whole disk blocks of
	// 4 KiB leave nothing to gain.
	minCompressBytes = 16 << 10
	// sampleBytes is the length of one sample; sampling both is under 2 % of
	// the time that writing a page of 6.9 MB takes.
	sampleBytes = 64 << 10
	// trialBlocks of a page are coded before its gain is judged once more.
	trialBlocks = 4
	// maxSkip pages at most are stored raw untried after pages that gained nothing.
	maxSkip = 32
)

// zstdLevel is the encoder's level in each mode: auto takes zstd only for what
// repeats itself, where the fastest level is as good.
func (c Compress) zstdLevel() zstd.EncoderLevel {
	if c == CompressZstd {
		return zstd.SpeedDefault
	}
	return zstd.SpeedFastest
}

// trials decides whether the next page is worth a sample. After pages in a row
// that gained nothing it lets more and more pages pass untried.
type trials struct {
	mu struct {
		sync.Mutex
		misses, skip int
	}
}

// next reports whether to try the next page.
func (t *trials) next() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.skip > 0 {
		t.mu.skip--
		return false
	}
	return true
}

// result says what a page that was tried has brought.
func (t *trials) result(gained bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gained {
		t.mu.misses = 0
		return
	}
	t.mu.misses++
	if n := t.mu.misses - 4; n >= 0 {
		t.mu.skip = min(1<<min(n, 10), maxSkip)
	}
}

// chooseAuto picks a coding by samples of a page. Huffman's result is computed
// from how often each byte occurs, zstd's is tried.
func chooseAuto(c *coder, samples [][]byte) (coding, error) {
	best := coding{codecRaw, 1}
	var total int
	var zstdBytes float64
	huff := map[int]float64{}
	for _, s := range samples {
		total += len(s)
		counts := countBytes(s)
		for _, width := range []int{1, 2, 4} {
			huff[width] += counts.huffmanEstimate(width)
		}
		out, err := c.encode(s, coding{codecZstd, 1})
		if err != nil {
			return best, err
		}
		if out == nil {
			out = s
		}
		zstdBytes += float64(len(out))
	}
	limit := float64(total) * (1 - minGain)
	for _, width := range []int{1, 2, 4} {
		if huff[width] < limit {
			best, limit = coding{codecHuffman, width}, huff[width]
		}
	}
	if best.codec == codecHuffman {
		limit *= zstdBetter
	}
	if zstdBytes < limit {
		best = coding{codecZstd, 1}
	}
	return best, nil
}

// chooseZstd picks the plane width with which zstd does best on the samples.
func chooseZstd(c *coder, samples [][]byte) (coding, error) {
	best, bestBytes := coding{codecZstd, 1}, math.MaxInt
	for _, width := range []int{1, 2, 4} {
		n := 0
		for _, s := range samples {
			out, err := c.encode(s, coding{codecZstd, width})
			if err != nil {
				return best, err
			}
			if out == nil {
				out = s
			}
			n += len(out)
		}
		if n < bestBytes {
			best, bestBytes = coding{codecZstd, width}, n
		}
	}
	return best, nil
}

// byteCounts is how often each byte occurs at each position in a 32-bit value.
type byteCounts [4][256]uint32

func countBytes(s []byte) *byteCounts {
	var c byteCounts
	for ; len(s) >= 4; s = s[4:] {
		c[0][s[0]]++
		c[1][s[1]]++
		c[2][s[2]]++
		c[3][s[3]]++
	}
	return &c
}

// huffmanEstimate is about how many bytes it takes to code the bytes of values
// of the given width separately: the entropy of each plane.
func (c *byteCounts) huffmanEstimate(width int) (bytes float64) {
	const treeBytes = 64 // about, of a piece
	for p := range width {
		plane := c[p]
		for q := p + width; q < 4; q += width {
			for v := range plane {
				plane[v] += c[q][v]
			}
		}
		n, bits := entropy(&plane)
		bytes += min(n, bits/8+treeBytes)
	}
	return bytes
}

// entropy of n counted bytes, in bits.
func entropy(counts *[256]uint32) (n, bits float64) {
	for _, c := range counts {
		n += float64(c)
	}
	for _, c := range counts {
		if c > 0 {
			bits += float64(c) * math.Log2(n/float64(c))
		}
	}
	return n, bits
}
