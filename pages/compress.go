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
	// planesBetter is the part of a page that separating bytes must save before
	// auto does it: it costs as much time as decoding.
	planesBetter = 0.01
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

// decodeBytesPerSec is about what one CPU decodes (FORMAT.md has the figures).
const decodeBytesPerSec = 1e9

// keepsUp reports whether half of the CPUs (engines use the others) decode as
// fast as the disk reads: a page must not come back later for being shorter. Of
// pages that take half of their size or less the disk reads so little that they
// always do.
func keepsUp(ratio, diskBytesPerSec float64, cpus int) bool {
	return ratio <= 0.5 || diskBytesPerSec <= decodeBytesPerSec*float64(cpus)/2
}

// chooseAuto picks a coding by samples of a page, and says to which part of its
// size it brings them. Huffman's result is computed from how often each byte
// occurs, zstd's is tried.
func chooseAuto(c *coder, samples [][]byte) (best coding, ratio float64, err error) {
	best = coding{codecRaw, 1}
	var total int
	var zstdBytes float64
	var huff1, huff4 float64
	for _, s := range samples {
		total += len(s)
		counts := countBytes(s)
		huff1 += counts.huffmanTogether()
		huff4 += counts.huffmanPlanes()
		out, err := c.encode(s, coding{codecZstd, 1})
		if err != nil {
			return best, 1, err
		}
		if out == nil {
			out = s
		}
		zstdBytes += float64(len(out))
	}
	limit, length := float64(total)*(1-minGain), float64(total)
	if huff1 < limit {
		best, limit, length = coding{codecHuffman, 1}, huff1, huff1
	}
	if huff4 < limit-planesBetter*float64(total) {
		best, limit, length = coding{codecHuffman, planeWidth}, huff4, huff4
	}
	if best.codec == codecHuffman {
		limit *= zstdBetter
	}
	if zstdBytes < limit {
		best, length = coding{codecZstd, 1}, zstdBytes
	}
	return best, length / float64(total), nil
}

// chooseZstd finds out whether zstd does better on the samples with their bytes
// separated.
func chooseZstd(c *coder, samples [][]byte) (coding, error) {
	best, bestBytes := coding{codecZstd, 1}, math.MaxInt
	for _, planes := range []int{1, planeWidth} {
		n := 0
		for _, s := range samples {
			out, err := c.encode(s, coding{codecZstd, planes})
			if err != nil {
				return best, err
			}
			if out == nil {
				out = s
			}
			n += len(out)
		}
		if n < bestBytes {
			best, bestBytes = coding{codecZstd, planes}, n
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

// huffmanPlanes is about how many bytes the counted ones take, each plane coded
// by itself.
func (c *byteCounts) huffmanPlanes() (bytes float64) {
	for p := range c {
		bytes += huffmanEstimate(&c[p])
	}
	return bytes
}

// huffmanTogether is the same for all of them together.
func (c *byteCounts) huffmanTogether() float64 {
	sum := c[0]
	for _, plane := range c[1:] {
		for v, n := range plane {
			sum[v] += n
		}
	}
	return huffmanEstimate(&sum)
}

// huffmanEstimate is the entropy of the counted bytes, and a tree.
func huffmanEstimate(counts *[256]uint32) float64 {
	const treeBytes = 64 // about
	var n, bits float64
	for _, c := range counts {
		n += float64(c)
	}
	for _, c := range counts {
		if c > 0 {
			bits += float64(c) * math.Log2(n/float64(c))
		}
	}
	return min(n, bits/8+treeBytes)
}
