package pages

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Pages as engines have them, made up: values drawn from distributions, not
// from real models. All are functions of the seed.

func testRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// randomPage is noise: what nothing can shorten.
func randomPage(seed uint64, n int) []byte {
	r := testRand(seed)
	b := make([]byte, n)
	i := 0
	for ; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	for ; i < n; i++ {
		b[i] = byte(r.Uint32())
	}
	return b
}

// bf16Page has attention-like values: each of 128 channels with a scale of its own.
func bf16Page(seed uint64, n int) []byte {
	r := testRand(seed)
	scale := channelScales(r)
	b := make([]byte, n)
	for i := 0; i+2 <= n; i += 2 {
		bits := math.Float32bits(float32(r.NormFloat64() * scale[i/2%len(scale)]))
		binary.LittleEndian.PutUint16(b[i:], uint16((bits+0x8000)>>16))
	}
	return b
}

func fp32Page(seed uint64, n int) []byte {
	r := testRand(seed)
	scale := channelScales(r)
	b := make([]byte, n)
	for i := 0; i+4 <= n; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(r.NormFloat64()*scale[i/4%len(scale)])))
	}
	return b
}

// fp8Page has e4m3 values, scaled as quantised caches scale them.
func fp8Page(seed uint64, n int) []byte {
	r := testRand(seed)
	b := make([]byte, n)
	for i := range b {
		b[i] = e4m3(r.NormFloat64() * 60)
	}
	return b
}

// halfPage is a bf16 page of which the second half was never filled.
func halfPage(seed uint64, n int) []byte {
	b := make([]byte, n)
	copy(b, bf16Page(seed, n/2))
	return b
}

// rowsPage repeats rows: what an entropy coder does not see and zstd does.
func rowsPage(seed uint64, n int) []byte {
	row := randomPage(seed, 4096)
	b := make([]byte, n)
	for i := range b {
		b[i] = row[i%len(row)]
	}
	return b
}

func channelScales(r *rand.Rand) []float64 {
	scale := make([]float64, 128)
	for i := range scale {
		scale[i] = math.Exp(r.NormFloat64())
	}
	return scale
}

func e4m3(v float64) byte {
	sign := byte(0)
	if v < 0 {
		sign, v = 0x80, -v
	}
	if v == 0 {
		return sign
	}
	e := math.Max(math.Floor(math.Log2(v)), -6)
	q := math.Round(v / math.Pow(2, e-3))
	if q >= 16 {
		q, e = q/2, e+1
	}
	switch {
	case e > 8 || e == 8 && q > 14:
		return sign | 0x7e
	case q < 8:
		return sign | byte(q)
	}
	return sign | byte(int(e)+7)<<3 | byte(int(q)-8)
}

// testPages are the kinds of page by name.
var testPages = []struct {
	name string
	make func(seed uint64, n int) []byte
}{
	{"bf16", bf16Page}, {"fp8", fp8Page}, {"fp32", fp32Page},
	{"half-filled", halfPage}, {"repeated-rows", rowsPage}, {"random", randomPage},
}
