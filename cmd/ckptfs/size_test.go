package main

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
	}{
		{"4096", 4096}, {"0", 0}, {"4GiB", 4 << 30}, {"512MiB", 512 << 20}, {"10G", 10 << 30}, {"10GB", 1e10},
		{"1.5T", 3 << 39}, {"8 mib", 8 << 20}, {"64k", 64 << 10}, {"2Gi", 2 << 30}, {"100b", 100}, {"0.5KiB", 512},
		{" 7MB ", 7e6},
	} {
		got, err := parseSize(c.in)
		if err != nil || got != c.want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"": "no size", "GiB": "no size", "-1": "no size", "4XB": "unknown unit", "1e3": "no size", "1..5G": "no size",
		"9999999P": "larger than", "99999999999999999999": "larger than", "0x10": "no size", "4GiB/s": "unknown unit", "∞": "no size",
	} {
		if n, err := parseSize(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseSize(%q) = %d, %v; want an error that says %q", in, n, err, want)
		}
	}
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sizeValue(rapid.Int64Range(0, 1<<60).Draw(t, "bytes"))
		var back sizeValue
		if err := back.Set(v.String()); err != nil || back != v {
			t.Fatalf("%d is written %s and read back as %d, %v", int64(v), v.String(), int64(back), err)
		}
	})
}
