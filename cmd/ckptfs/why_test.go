package main

import (
	"bytes"
	"strings"
	"testing"

	"ckptfs/fusefs/client"
)

// TestWhyFindsWithoutAHistory: the history is bounded, and what is published may be older.
func TestWhyFindsWithoutAHistory(t *testing.T) {
	var out bytes.Buffer
	reply := client.Reply{Generation: "00000004-prompt-" + strings.Repeat("ab", 20), NumTokens: 4}
	err := tellLookup(&out, t.TempDir(), reply, 5)
	if err != nil || !strings.Contains(out.String(), "found: 4 of 5 tokens") || !strings.Contains(out.String(), "nothing more is remembered") {
		t.Errorf("%v, %q", err, out.String())
	}
}
