package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// sizeValue is a number of bytes as a flag: 4GiB, 512MiB, 10G, 1.5T, 4096. It is a pflag.Value.
type sizeValue int64

// sizeUnits are the factors of the units, in lower case. As with dd and truncate, a single letter is a power of 1024.
var sizeUnits = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "ki": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mi": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gi": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "ti": 1 << 40, "tib": 1 << 40, "tb": 1e12,
	"p": 1 << 50, "pi": 1 << 50, "pib": 1 << 50, "pb": 1e15,
}

// parseSize reads a size with an optional unit. Fractions are allowed with a unit and rounded down to whole bytes.
func parseSize(s string) (int64, error) {
	text := strings.TrimSpace(s)
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	factor, ok := sizeUnits[unit]
	if !ok {
		return 0, fmt.Errorf("%q has the unknown unit %q; use KiB, MiB, GiB, TiB (or KB, MB, GB, TB for powers of 1000)", s, unit)
	}
	if strings.Trim(digits, "0123456789.") != "" || digits == "" {
		return 0, fmt.Errorf("%q is no size; write for example 4GiB, 512MiB or 4096", s)
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && float64(n)*factor < math.MaxInt64 {
		return n * int64(factor), nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no size; write for example 4GiB, 512MiB or 4096", s)
	}
	if f*factor >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is larger than any machine", s)
	}
	return int64(f * factor), nil
}

// Set implements pflag.Value.
func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err == nil {
		*v = sizeValue(n)
	}
	return err
}

// String implements pflag.Value: the size in the largest unit that divides it.
func (v *sizeValue) String() string {
	n := int64(*v)
	for _, u := range []struct {
		bytes int64
		name  string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Type implements pflag.Value: the name of the value in help.
func (v *sizeValue) Type() string { return "size" }

// people is the size rounded for people: "4.0 GiB".
func (v sizeValue) people() string { return humanize.IBytes(uint64(max(v, 0))) }
